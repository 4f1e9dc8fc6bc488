"""Inputs that take a layer's sums to their bound, for every possible window."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from qgraph.exact.reference import Reference
from qgraph.exact.sums import farthest_input, seen_taps, sums_of_products
from qgraph.ir.graph import Graph
from qgraph.ir.ops.windows import PaddingRule, explicit_pads
from qgraph.ir.types import Fixed
from tests.exact.test_bounds import integers

PADDINGS = st.sampled_from([*PaddingRule, ((0, 2), (1, 0)), ((2, 1), (0, 1))])
PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))


def convolution(op: str, image: tuple[int, int], filters: np.ndarray, signed: bool, attrs) -> Graph:
    """One layer on codes of 3 bits, with filters that are integers."""
    g = Graph("convolution")
    x = g.input("image", "float32", (1, *image, filters.shape[2]))
    w = integers(g, g.const(filters.astype(np.float32)), 8, role="weight")
    g.outputs["y"] = g.add(op, integers(g, x, 3, signed), w, name="layer", attrs=attrs)
    g.facts.add("calibrated")
    return g


@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d"])
@settings(max_examples=100)
@given(st.data())
def test_the_farthest_input_reaches_the_bound(op, data):
    image = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 6)), "image")
    kernel, strides = data.draw(PAIRS, "kernel"), data.draw(PAIRS, "strides")
    dilations, padding = data.draw(PAIRS, "dilations"), data.draw(PADDINGS, "padding")
    attrs = {"strides": strides, "dilations": dilations, "padding": padding}
    pads = explicit_pads(image, kernel, strides, dilations, padding)
    for size, k, d, pad in zip(image, kernel, dilations, pads, strict=True):
        assume((k - 1) * d + 1 <= size + sum(pad))
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    filters = rng.integers(-9, 10, (*kernel, 2, 2))
    signed = data.draw(st.booleans(), "signed")
    g = convolution(op, image, filters, signed, attrs)
    x, shape = g.nodes["layer"].inputs[0], g.types["image"].shape
    low, high = (-4, 3) if signed else (0, 7)
    taps = seen_taps(image, kernel, strides, dilations, pads)
    bound = sums_of_products(op, filters, low, high, 7, taps)
    for channel in range(len(bound.lows)):
        for side, wanted in (("lowest", bound.lows), ("highest", bound.highs)):
            codes = farthest_input(
                op, {**attrs, "pads": pads}, shape, (low, high), filters, channel, side
            )
            y = Reference(g).run({x: Fixed(codes, 0)}, ["layer"])["layer"].codes[..., channel]
            assert (y.min() if side == "lowest" else y.max()) == wanted[channel]
