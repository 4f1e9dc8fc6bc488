"""Formats of few significand bits: native, numpy and TensorFlow, against ml_dtypes and float16."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qgraph import kernels
from qgraph.kernels import plain
from qgraph.rl.half.precision import precision_of, round_significand

FORMATS = {10: np.float16, 2: ml_dtypes.float8_e5m2}  # all that have 5 exponent bits
EVERY_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def same(a, b):
    """The same bits, but for those of NaN."""
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    numbers = ~np.isnan(a)
    assert np.array_equal(np.isnan(a), np.isnan(b))
    assert np.array_equal(a[numbers].view(np.uint32), b[numbers].view(np.uint32))


def neighbours(values):
    """Values, what lies midway between them, and what is beside that."""
    finite = np.sort(values[np.isfinite(values)])
    middle = (finite[1:] + finite[:-1]) / 2
    beside = [np.nextafter(middle, np.float32(end)) for end in (-np.inf, np.inf)]
    largest = np.array([65472, 65488, 65519.996, 65520, 65536, 1e38, np.inf, np.nan], np.float32)
    return np.concatenate([values, middle, *beside, largest, -largest]).astype(np.float32)


def reference(x, bits):
    """By the format's own conversion, where there is one."""
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(FORMATS[bits]).astype(np.float32)


@pytest.mark.parametrize("bits", FORMATS)
def test_every_number_of_float16_and_between(bits):
    x = neighbours(EVERY_HALF)
    wanted = reference(x, bits)
    same(kernels.round_significand(x, bits), wanted)
    same(plain.round_significand(x, bits), wanted)
    same(round_significand(tf.constant(x), bits), wanted)


@pytest.mark.parametrize("bits", range(1, 11))
def test_all_three_are_the_same(bits):
    x = neighbours(EVERY_HALF)
    wanted = plain.round_significand(x, bits)
    same(kernels.round_significand(x, bits), wanted)
    same(round_significand(tf.constant(x), bits), wanted)
    same(kernels.round_significand(wanted, bits), wanted)
    narrow = tf.constant(EVERY_HALF, tf.float16)
    same(
        tf.cast(round_significand(narrow, bits), tf.float32),
        kernels.round_significand(EVERY_HALF, bits),
    )


@given(
    hnp.arrays(np.float32, hnp.array_shapes(max_dims=3), elements=st.floats(width=32)),
    st.sampled_from([1, 2, 3, 5, 7, 10]),
)
def test_of_any_float32(x, bits):
    wanted = plain.round_significand(x, bits)
    same(kernels.round_significand(x, bits), wanted)
    same(kernels.round_significand(x.T, bits), wanted.T)
    normal = np.where(np.abs(x) < 1e-37, 0, x)  # TensorFlow flushes subnormal numbers
    same(np.abs(round_significand(tf.constant(normal), bits)), np.abs(wanted))
    if bits in FORMATS:
        same(wanted, reference(x, bits))


@given(st.floats(-60000, 60000, width=32), st.integers(1, 9))
def test_bits_are_numbers_of_the_next_wider_format(x, bits):
    found = kernels.round_significand(np.float32([x]), bits)
    same(kernels.round_significand(found, bits + 1), found)


@pytest.mark.parametrize("bits", [0, 11])
def test_other_bits_are_refused(bits):
    with pytest.raises(ValueError, match=r"bits must be in \[1, 10\]"):
        kernels.round_significand(np.zeros(1, np.float32), bits)


def test_gradients_are_rounded_on_their_way_back():
    precision = precision_of("float16", 3)
    x = tf.constant([1.06, 3.0], tf.float16)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = precision.rounded(x)
        loss = tf.reduce_sum(y * tf.constant([1.06, 2.2], tf.float16))
    assert y.numpy().tolist() == [1.0, 3.0]
    assert tape.gradient(loss, x).numpy().tolist() == [1.0, 2.25]


def test_precisions_by_name():
    assert precision_of("mixed").stored == tf.float32
    assert precision_of("mixed").computed == tf.float16
    assert precision_of("float64").stored == tf.float64
    x = tf.constant([1.0001])
    assert precision_of("float32").rounded(x) is x
