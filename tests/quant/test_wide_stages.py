"""Internal stages past 16 bits: every form against the reference, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.backends.network_forms import Network
from qgraph.errors import UnsupportedError
from qgraph.exports import FORMS, form
from qgraph.ir.graph import Graph
from qgraph.program import lower
from qgraph.quant.profile import Profile
from qgraph.train.model import TrainingGraph
from tests.helpers.forms import check_every_form
from tests.helpers.generators.graphs import graphs
from tests.helpers.generators.profiles import profiles
from tests.helpers.quantized import INT8
from tests.quant.test_target_keys import FEW, made, residual, specs


def wide(bits: int, profile: Profile = INT8) -> Profile:
    return replace(profile, bits=replace(profile.bits, internal=bits))


def leaky(slope: float = 0.1) -> Graph:
    g = Graph("leaky")
    x = g.input("x", "float32", (None, 4))
    w = g.const(np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32), "w")
    product = g.add("matmul", x, w, name="product")
    alpha = g.const(np.float32(slope), "slope")
    g.outputs["y"] = g.add("maximum", product, g.add("mul", product, alpha), name="leaky")
    return g


@FEW
@given(graphs(), profiles(), st.integers(17, 32), st.integers(0, 99))
def test_every_form_of_a_network(graph, profile, bits, seed) -> None:
    network = check_every_form(graph, wide(bits, profile), seed)
    assert all(s.bits <= bits for s in specs(network.graph).values() if s.role == "internal")


@settings(max_examples=8)
@given(st.sampled_from([residual, leaky]), st.sampled_from([17, 24, 25, 26, 32]))
def test_every_form_of_stages_of_this_width(make, bits: int) -> None:
    network = check_every_form(make(), wide(bits), 0)
    found = {s.bits for s in specs(network.graph).values() if s.role == "internal"}
    assert found == {bits}


def test_training_refuses_codes_that_float32_does_not_hold() -> None:
    TrainingGraph(made(wide(25)))
    with pytest.raises(UnsupportedError, match="codes of 26 bits cannot be trained") as refusal:
        TrainingGraph(made(wide(26)))
    assert refusal.value.node and "bits.internal" in str(refusal.value.hint)


def test_forms_that_cannot_carry_it_say_so() -> None:
    graph = made(wide(32))
    network = Network(graph, lower(graph), wide(32), {}, {})
    refusals = {name: str(form(name).refusal(network) or "") for name in FORMS}
    for name in ("onnx-qdq", "qonnx"):
        assert "first/q32" in refusals[name] and "use the format onnx-integer" in refusals[name]
    for name in ("engine", "tensorflow", "onnx-integer", "c", "vectors"):
        assert not refusals[name], name
