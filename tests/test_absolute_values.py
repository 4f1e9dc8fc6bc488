"""Absolute values stay integers: on the scale of their input, in every form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.ir.graph import Graph
from tests.helpers.forms import check_every_form
from tests.helpers.layers import WINDOW
from tests.helpers.quantized import PROFILES


def _conv(graph: Graph, x: str, rng: np.random.Generator, channels: int = 4) -> str:
    filters = rng.normal(0, 0.3, (3, 3, graph.types[x].shape[-1], channels)).astype(np.float32)
    return graph.add("conv2d", x, graph.const(filters, "w"), name="conv", attrs=WINDOW)


def behind_a_bias(graph: Graph, x: str, rng: np.random.Generator) -> str:
    bias = graph.const(rng.normal(size=4).astype(np.float32), "bias")
    return graph.add("abs", graph.add("bias_add", _conv(graph, x, rng), bias))


def of_a_difference(graph: Graph, x: str, rng: np.random.Generator) -> str:
    return graph.add("abs", graph.add("sub", _conv(graph, x, rng), _conv(graph, x, rng)))


def twice(graph: Graph, x: str, rng: np.random.Generator) -> str:
    once = graph.add("abs", _conv(graph, x, rng))
    return _conv(graph, graph.add("abs", once), rng)


@pytest.mark.parametrize("profile", ["int8", "per-channel-int32"])
@pytest.mark.parametrize("network", [behind_a_bias, of_a_difference, twice])
@settings(max_examples=1)
@given(st.integers(0, 10**6))
def test_every_form_has_the_same_codes(network, profile: str, seed: int) -> None:
    graph, rng = Graph("absolute"), np.random.default_rng(seed)
    graph.outputs["y"] = network(graph, graph.input("x", "float32", (None, 5, 6, 3)), rng)
    made = check_every_form(graph, PROFILES[profile], seed)
    assert "abs" in {step.op for step in made.program.steps}
    assert "lookup" not in {step.op for step in made.program.steps}


@settings(max_examples=1)
@given(st.just(0))
def test_the_lowest_code_has_an_absolute_value(seed: int) -> None:
    """128, which 8 bits hold without a sign."""
    graph = Graph("lowest")
    x = graph.input("x", "float32", (None, 2, 2, 1))
    w = graph.const(np.ones((1, 1, 1, 1), np.float32), "w")
    graph.outputs["y"] = graph.add("abs", graph.add("conv2d", x, w, attrs=WINDOW))
    program = check_every_form(graph, PROFILES["int32-bias"], seed).program
    (step,) = (step for step in program.steps if step.op == "abs")
    tensor = program.tensors[step.output]
    assert tensor.low == 0 and tensor.high == -program.tensors[step.inputs[0]].low
