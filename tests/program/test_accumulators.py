"""Bounds of accumulators are those of the graph, and are reached by the inputs that are named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.exact.bounds import accumulator_bits, bounds
from qgraph.exact.sums import farthest_input
from qgraph.ir.graph import Graph
from qgraph.ir.types import Codes
from qgraph.program import Program, lower
from qgraph.program.accumulators import Accumulator, accumulators
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
        products = found[accumulator.layer]
        ends = accumulator.product_lows.min(), accumulator.product_highs.max()
        assert ends == (products.low, products.high)
        assert accumulator.width_with_bias == bound.width
        assert accumulator.width_of_products == products.width
        assert accumulator.width == max(bound.width, products.width)
        assert accumulator.width == accumulator_bits(graph, found, accumulator.layer)
        assert accumulator.widths[accumulator.channel] == accumulator.width
        assert accumulator.exact_in == bound.exact_in


def layer(op: str, rng, shape, filters, **attrs):
    g = Graph("net")
    x = g.input("x", "float32", (None, *shape))
    w = g.const(rng.normal(size=filters).astype(np.float32), "w")
    g.outputs["y"] = g.add(op, x, w, name="layer", attrs=attrs)
    return lower(quantize(g, PROFILES["int32-bias"]))


def test_a_constant_bias_behind_the_sum_is_part_of_it() -> None:
    g = Graph("net")
    x = g.input("x", "float32", (None, 2))
    w = g.const(np.array([[0.5, 0.25], [-0.5, 0.5]], np.float32), "w")
    y = g.add("matmul", x, w, name="layer")
    g.outputs["y"] = g.add("bias_add", y, g.const(np.array([3, -7], np.float32), "b"), name="sum")
    program = lower(quantize(g, PROFILES["int32-bias"]))
    (found,) = accumulators(program)
    step = next(s for s in program.steps if found.layer in s.inputs)
    bias = program.constants[step.inputs[1]]
    assert (step.op, found.tensor) == ("add", step.output)
    weights = program.constants[program.steps[0].inputs[1]].astype(np.int64)
    entry = program.tensors[program.entries[0].tensor]
    up, down = np.maximum(weights, 0).sum(0), np.minimum(weights, 0).sum(0)
    np.testing.assert_array_equal(found.highs, up * entry.high + down * entry.low + bias)
    np.testing.assert_array_equal(found.lows, up * entry.low + down * entry.high + bias)


@pytest.mark.parametrize(
    ("lows", "highs", "channel", "width"),
    [
        ([-8, -9], [7, 7], 1, 5),
        ([-8, -1], [7, 8], 1, 5),
        ([-20, -1], [3, 8], 0, 6),
        ([-1, -16], [16, 0], 0, 6),
    ],
)
def test_the_channel_that_goes_farthest_needs_the_widest_accumulator(lows, highs, channel, width):
    ends = np.array(lows), np.array(highs)
    found = Accumulator("layer", "matmul", "layer", 1, *ends, *ends, 99)
    assert (found.channel, found.width) == (channel, width)


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


def overflowing_input(program: Program, accumulator: Accumulator, channel: int, side: str) -> Codes:
    """Codes of the layer's input that take a channel to its `highest` or `lowest` sum."""
    step = next(s for s in program.steps if s.output == accumulator.layer)
    x, weights = program.tensors[step.inputs[0]], program.constants[step.inputs[1]]
    ends = (x.low, x.high)
    attrs = dict(step.attrs.items())
    return farthest_input(step.op, attrs, x.shape, ends, weights, channel, side)


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
        sums = step.definition.compute(step.attrs, [codes, weights])[..., channel]
        if side == "highest":
            assert sums.max() == found.highs[channel]
        else:
            assert sums.min() == found.lows[channel]


@pytest.mark.parametrize(("bias", "with_bias"), [(-4, 18), (-3, 19), (0, 19), (3, 20)])
def test_a_bias_that_brings_sums_nearer_to_zero_saves_no_bit(bias: int, with_bias: int) -> None:
    """Products reach 8 * 127 * 255, 18 bits and a sign, before the bias is added."""
    g = Graph("net")
    x = g.input("x", "float32", (None, 8))
    y = g.add("matmul", x, g.const(np.full((8, 1), 127 / 128, np.float32), "w"), name="layer")
    y = g.add("bias_add", y, g.const(np.float32([bias]), "b"), name="biased")
    g.outputs["y"] = y
    data = np.random.default_rng(0).uniform(0, 1, (16, 8)).astype(np.float32)
    (found,) = accumulators(lower(quantize(g, PROFILES["int32-bias"], {"x": data})))
    assert (found.product_lows[0], found.product_highs[0]) == (0, 8 * 127 * 255)
    assert found.highs[0] == 8 * 127 * 255 + bias * 2**15
    assert (found.width_of_products, found.width_with_bias) == (19, with_bias)
    assert found.width == max(19, with_bias) and found.channel == 0
