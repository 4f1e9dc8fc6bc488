"""Bounds of accumulators are those of the graph, and are reached by the inputs that are named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.exact.bounds import bounds
from qgraph.ir.graph import Graph
from qgraph.program import lower
from qgraph.program.accumulators import accumulators, overflowing_input
from qgraph.program.run import RULES
from tests.helpers.quantized import PROFILES, quantize, random_network


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from(["int8", "int32-bias", "per-channel"]))
def test_bounds_are_those_of_the_graph(seed: int, profile: str) -> None:
    graph = random_network(seed, profile)
    found = bounds(graph)
    program = lower(graph)
    for accumulator in accumulators(program):
        bound = found[accumulator.tensor]
        assert (accumulator.lows.min(), accumulator.highs.max()) == (bound.low, bound.high)
        assert accumulator.magnitude == bound.magnitude
        assert accumulator.width == bound.width
        assert accumulator.exact_in == bound.exact_in


def layer(op: str, rng, shape, filters, **attrs):
    g = Graph("net")
    x = g.input("x", "float32", (None, *shape))
    w = g.const(rng.normal(size=filters).astype(np.float32), "w")
    g.outputs["y"] = g.add(op, x, w, name="layer", attrs=attrs)
    return lower(quantize(g, PROFILES["int32-bias"]))


def window(**attrs):
    return {"strides": (1, 1), "dilations": (1, 1), "padding": "same", **attrs}


LAYERS = {
    "matmul": ("matmul", (9,), (9, 5), {}),
    "conv": ("conv2d", (6, 5, 4), (3, 2, 4, 6), window(strides=(2, 1))),
    "valid": ("conv2d", (6, 5, 4), (3, 2, 4, 6), window(padding="valid", dilations=(2, 1))),
    "small": ("conv2d", (2, 3, 2), (3, 5, 2, 4), window(padding="same")),
    "smaller": ("depthwise_conv2d", (2, 2, 3), (3, 3, 3, 1), window(strides=(2, 2))),
    "groups": ("conv2d", (4, 4, 6), (3, 3, 2, 9), window()),
    "depthwise": ("depthwise_conv2d", (5, 5, 3), (3, 3, 3, 2), window(padding=((1, 0), (2, 1)))),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("side", ["lowest", "highest"])
def test_the_input_named_goes_as_far_as_the_bound(kind: str, side: str) -> None:
    op, shape, filters, attrs = LAYERS[kind]
    program = layer(op, np.random.default_rng(3), shape, filters, **attrs)
    (found,) = accumulators(program)
    step = next(s for s in program.steps if s.output == found.layer)
    weights = program.constants[step.inputs[1]].astype(np.int64)
    for channel in range(len(found.lows)):
        codes = overflowing_input(program, found, channel, side)
        tensor = program.tensors[step.inputs[0]]
        assert codes.shape == tensor.shape
        assert tensor.low <= codes.min() and codes.max() <= tensor.high
        sums = RULES[op](step.attrs, [codes, weights])[..., channel]
        if side == "highest":
            assert sums.max() == found.highs[channel]
        else:
            assert sums.min() == found.lows[channel]
