"""The quantizer's value and gradients are those of the paper (equations 4 and 6 to 8)."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.ir.types import ROUNDINGS, QuantSpec
from qgraph.numerics import fake_quantize
from qgraph.train.quantizer import quantize

NUMBERS = st.lists(st.floats(-8, 8, width=32, allow_subnormal=False), min_size=1, max_size=30)


def of(x, log2_t, bits, signed, rounding="half_even"):
    """Value, gradient of x, gradient of log2_t for upstream gradients 1, 2, 3 ..."""
    x, log2_t = tf.constant(x, tf.float32), tf.constant(log2_t, tf.float32)
    upstream = tf.range(1.0, len(x) + 1)
    with tf.GradientTape() as tape:
        tape.watch([x, log2_t])
        y = quantize(x, log2_t, bits, signed, rounding)
    gradients = tape.gradient(y, [x, log2_t], output_gradients=upstream)
    return y.numpy(), *(g.numpy() for g in gradients)


@settings(max_examples=60)
@given(
    NUMBERS,
    st.floats(-3, 3, width=32, allow_subnormal=False),
    st.integers(2, 8),
    st.booleans(),
    st.sampled_from(ROUNDINGS),
)
def test_values_and_gradients(x, log2_t, bits, signed, rounding):
    log2_t = np.float32(log2_t)
    exponent = bits - signed - int(np.ceil(log2_t))
    spec = QuantSpec(bits, signed, "activation", exponent, rounding)
    array = np.array(x, np.float32)
    value, by_x, by_threshold = of(x, log2_t, bits, signed, rounding)
    np.testing.assert_array_equal(value, fake_quantize(array, spec))
    scaled = np.ldexp(array.astype(np.float64), exponent)
    wide = QuantSpec(32, True, "activation", 0, rounding)
    code = fake_quantize(scaled, wide)
    inside = (code >= spec.lo) & (code <= spec.hi)
    upstream = np.arange(1, len(x) + 1)
    np.testing.assert_array_equal(by_x, np.where(inside, upstream, 0))
    slopes = np.where(inside, code - scaled, np.clip(code, spec.lo, spec.hi))
    wanted = np.ldexp(np.log(2), -exponent) * (upstream * slopes).sum()
    # Products are float32, their sum is float64.
    size = np.ldexp(np.log(2), -exponent) * np.abs(upstream * slopes).sum()
    assert abs(by_threshold - wanted) <= 1e-6 * size + 1e-30


def test_nan_shows_and_infinities_saturate():
    value, *_ = of([np.nan, np.inf, -np.inf], 0.0, 8, True)
    assert np.isnan(value[0]) and value[1:].tolist() == [127 / 128, -1]


@pytest.mark.parametrize("bits", [4, 8])
def test_one_threshold_gradient_by_hand(bits):
    high = 2 ** (bits - 1) - 1
    _, by_x, by_threshold = of([0.3, 5.0, -5.0], 0.0, bits, True)
    scale = 2.0 ** (1 - bits)
    inside = np.rint(np.float32(0.3) / scale) - np.float32(0.3) / scale
    wanted = scale * np.log(2) * (1 * inside + 2 * high + 3 * -(high + 1))
    assert by_x.tolist() == [1, 0, 0] and by_threshold == pytest.approx(wanted, rel=1e-6)
