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
from qgraph.rl.half import precision as half_precision
from qgraph.rl.half.precision import fused_op, plain_round, precision_of, round_significand
from qgraph.train import fused

FORMATS = {10: np.float16, 2: ml_dtypes.float8_e5m2}  # all that have 5 exponent bits
FUSED = pytest.mark.skipif(fused.library_path() is None, reason="the fused ops are not built")
EVERY_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def same(a, b):
    """The same bits, except those of NaN."""
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


@FUSED
@pytest.mark.parametrize("bits", range(1, 11))
def test_one_op_gives_the_bits_of_many(bits):
    x = tf.bitcast(np.arange(1 << 16, dtype=np.uint16), tf.float16)
    found, wanted = (
        tf.bitcast(y, tf.uint16) for y in (fused_op()(x, bits=bits), plain_round(x, bits))
    )
    assert np.array_equal(found, wanted)  # NaN's too
    wide = tf.constant(neighbours(EVERY_HALF))
    same(fused_op()(wide, bits=bits), plain_round(wide, bits))


@FUSED
@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, min_side=0), elements=st.floats(width=32)),
    st.integers(1, 10),
)
def test_one_op_gives_the_bits_of_many_of_any_float32(x, bits):
    for given_x in (tf.constant(x), tf.cast(x, tf.float16)):
        found = fused_op()(given_x, bits=bits)
        assert (found.shape, found.dtype) == (given_x.shape, given_x.dtype)
        same(tf.cast(found, tf.float32), tf.cast(plain_round(given_x, bits), tf.float32))


@FUSED
def test_the_op_is_left_out_where_ops_are_placed_on_a_gpu():
    with tf.device("/GPU:0"):
        assert fused_op() is None
    with tf.device("/CPU:0"):
        assert fused_op() is not None


@FUSED
@pytest.mark.parametrize("dtype", [tf.float32, tf.float16])
def test_the_op_in_the_memory_of_what_it_rounds(dtype):
    x = tf.constant(np.linspace(-3, 3, 600_001), dtype)  # enough for two threads

    @tf.function(input_signature=[tf.TensorSpec([None], dtype)])
    def run(x):
        y = round_significand(x * 2, 3)
        assert y.shape.as_list() == [None]
        return y, round_significand(y + x, 3)

    names = {node.type for node in run.get_concrete_function().graph.get_operations()}
    assert "QgraphRoundSignificand" in names
    y = plain_round(x * 2, 3)
    for found, wanted in zip(run(x), (y, plain_round(y + x, 3)), strict=True):
        same(tf.cast(found, tf.float32), tf.cast(wanted, tf.float32))


@FUSED
@pytest.mark.parametrize("bits", [0, 11])
def test_the_op_refuses_other_bits(bits):
    with pytest.raises(tf.errors.InvalidArgumentError, match="bits"):
        fused_op()(tf.zeros(1), bits=bits)


def test_where_the_op_is_not_taken(monkeypatch):
    x = tf.constant(EVERY_HALF)
    wanted = round_significand(x, 4)
    same(tf.function(lambda: round_significand(x, 4), jit_compile=True)(), wanted)
    assert round_significand(tf.cast(x, tf.float64), 4).dtype == tf.float64
    with monkeypatch.context() as patched:
        patched.setattr(tf.config, "get_visible_devices", lambda kind: [kind])
        assert fused_op() is None
    monkeypatch.setattr(half_precision, "chosen", lambda: fused.load(None))
    assert fused_op() is None
    same(round_significand(x, 4), wanted)


@pytest.mark.parametrize("op", [pytest.param(fused_op, marks=FUSED), lambda: None])
def test_gradients_are_rounded_on_their_way_back(op, monkeypatch):
    monkeypatch.setattr(half_precision, "fused_op", op)
    precision = precision_of("float16", 3)
    x = tf.constant([1.06, 3.0], tf.float16)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = precision.rounded(x)
        loss = tf.reduce_sum(y * tf.constant([1.06, 2.2], tf.float16))
    assert y.numpy().tolist() == [1.0, 3.0]
    assert tape.gradient(loss, x).numpy().tolist() == [1.0, 2.25]


def test_precisions_by_name():
    assert precision_of("mixed_float16").stored == tf.float32
    assert precision_of("mixed_float16").computed == tf.float16
    assert precision_of("float64").stored == tf.float64
    x = tf.constant([1.0001])
    assert precision_of("float32").rounded(x) is x
