"""The rounding `double`: LiteRT's reference kernels, and every form of a network."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Rounding
from qgraph.numerics import round_shift
from qgraph.train.model import TrainingGraph
from tests.helpers import tflite_convolution
from tests.helpers.forms import check_every_form
from tests.helpers.generators.graphs import graphs
from tests.helpers.generators.profiles import profiles
from tests.helpers.quantized import INT32_BIAS, assert_tf_equals_reference, quantize
from tests.quant.test_target_keys import FEW

CODES = np.arange(-6000, 6001)


def test_it_rounds_up_once_and_then_away_from_zero() -> None:
    for shift in range(2, 12):
        once = round_shift(CODES, 1, Rounding.HALF_UP)
        twice = round_shift(once, shift - 1, Rounding.HALF_AWAY)
        found = round_shift(CODES, shift, Rounding.DOUBLE)
        np.testing.assert_array_equal(found, twice)
        assert all((found != round_shift(CODES, shift, other)).any() for other in OTHERS)
    np.testing.assert_array_equal(round_shift(CODES, 1, Rounding.DOUBLE), once)
    np.testing.assert_array_equal(round_shift(CODES, 0, Rounding.DOUBLE), CODES)


OTHERS = [rounding for rounding in Rounding if rounding != Rounding.DOUBLE]


@FEW
@given(graphs(), profiles(), st.integers(0, 99))
def test_every_form_of_a_network(graph, profile, seed) -> None:
    check_every_form(graph, replace(profile, rounding=Rounding.DOUBLE), seed)


@pytest.mark.parametrize("shift", [1, 2, 3, 5, 8])
def test_the_reference_kernels_of_litert_round_so(shift: int) -> None:
    rng = np.random.default_rng(shift)
    x = rng.integers(-128, 128, (1, 64, 64, 3)).astype(np.int8)
    w = rng.integers(-128, 128, (1, 1, 3, 16)).astype(np.int8) >> max(6 - shift, 0)
    sums = x.astype(np.int64) @ w[0, 0].astype(np.int64)
    found = tflite_convolution.run(x, w, shift)

    def differ(rounding: Rounding) -> int:
        return int((np.clip(round_shift(sums, shift, rounding), -128, 127) != found).sum())

    assert differ(Rounding.DOUBLE) == 0
    assert all(differ(other) > 0 for other in OTHERS if (shift, other) != (1, Rounding.HALF_UP))


def test_graphs_of_floats_round_sums_so_too() -> None:
    """Some of 40,000 sums are at values where `double` and half away differ, in both float
    graphs.
    """
    rng, profile = np.random.default_rng(0), replace(INT32_BIAS, rounding=Rounding.DOUBLE)
    graph = Graph("layer")
    x = graph.input("x", "float32", (None, 8))
    weights = graph.const(rng.normal(size=(8, 10)).astype(np.float32), "w")
    graph.outputs["y"] = graph.add("matmul", x, weights, name="layer")
    feeds = {"x": rng.normal(size=(4000, 8)).astype(np.float32)}
    quantize(graph, profile, feeds)
    expected = Reference(graph).outputs(feeds)["y"]
    trained = TrainingGraph(graph)({"x": tf.constant(feeds["x"])})["y"]
    np.testing.assert_array_equal(trained, expected)
    assert assert_tf_equals_reference(graph, feeds)
    for node in graph.topological():
        if node.op == "quantize":
            spec = replace(spec_of(node), rounding=Rounding.HALF_AWAY)
            graph.set_attrs(node.name, spec=spec)
    assert (Reference(graph).outputs(feeds)["y"] != expected).any()
