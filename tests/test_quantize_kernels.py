"""The quantizer's kernels agree with numpy, to the bit, for any instruction set and threads."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qgraph import kernels
from qgraph.ir.types import ROUNDINGS
from qgraph.kernels import plain
from tests.helpers.exponents import exponent_of
from tests.helpers.vectors import vector_file

BIG = 600_007  # many blocks, several threads' worth, and no multiple of anything


pytestmark = pytest.mark.usefixtures("instruction_set")


def same_bits(a, b) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.all(bits(a) == bits(b)))


def bits(x):
    # Any NaN is as good as another.
    return np.where(np.isnan(x), np.nan, x).view(f"u{x.itemsize}")


def floats(shape, width=32):
    ties = st.integers(-700, 700).map(lambda i: i / 4)
    elements = st.floats(width=width) | ties | st.sampled_from([np.inf, -np.inf, -0.0, 1e-42])
    return hnp.arrays(np.float32, shape, elements=elements)


@st.composite
def quantizers(draw):
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=45))
    kept = draw(st.integers(0, len(shape)))
    exponents = st.integers(-126, 126) | st.integers(-4, 8)
    f = draw(hnp.arrays(np.int32, shape[kept:], elements=exponents))
    if kept == len(shape) and draw(st.booleans()):
        f = int(f)
    lo, hi = draw(
        st.sampled_from([(-128, 127), (0, 255), (-2, 1), (0, 3), (-32768, 32767), (0, 0)])
    )
    return draw(floats(shape)), f, lo, hi, draw(st.sampled_from(ROUNDINGS))


@given(quantizers())
def test_forward_is_numpys(case) -> None:
    x, f, lo, hi, rounding = case
    y = kernels.quantize(x, f, lo, hi, rounding)
    assert same_bits(y, plain.quantize(x, f, lo, hi, rounding))
    assert not np.signbit(y[y == 0]).any()


@given(st.data())
def test_gradients_are_numpys(data) -> None:
    x, f, lo, hi, rounding = data.draw(quantizers())
    g = data.draw(floats(x.shape))
    found = kernels.quantize_gradients(x, g, f, lo, hi, rounding)
    expected = plain.quantize_gradients(x, g, f, lo, hi, rounding)
    assert same_bits(found[0], expected[0])
    assert same_bits(found[1], expected[1])


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("tail", [(), (7,), (64,), (1100,)])
def test_large_and_on_any_number_of_threads(threads, rounding, tail) -> None:
    rng = np.random.default_rng(threads)
    rows = BIG // max(int(np.prod(tail)), 1)
    x, g = rng.normal(size=(2, rows, *tail)).astype(np.float32)
    f = rng.integers(3, 7, tail) if tail else 5
    y = kernels.quantize(x, f, -8, 7, rounding)
    assert same_bits(y, plain.quantize(x, f, -8, 7, rounding))
    found = kernels.quantize_gradients(x, g, f, -8, 7, rounding)
    expected = plain.quantize_gradients(x, g, f, -8, 7, rounding)
    assert same_bits(found[0], expected[0])
    assert same_bits(found[1], expected[1])


@pytest.mark.slow
@pytest.mark.parametrize("tail", [(), (64,), (40,)])
def test_streamed_outputs(threads, tail) -> None:
    count = (1 << 22) + (0 if tail else 77)
    x, g = np.random.default_rng(0).normal(size=(2, count)).astype(np.float32)
    rows = count // max(int(np.prod(tail)), 1)
    x, g = (a[: rows * max(int(np.prod(tail)), 1)].reshape(rows, *tail) for a in (x, g))
    f = np.full(tail, 5) if tail else 5
    out = aligned_like(x)
    assert same_bits(kernels.quantize(x, f, -8, 7, out=out), plain.quantize(x, f, -8, 7))
    found = kernels.quantize_gradients(x, g, f, -8, 7, out=out)
    expected = plain.quantize_gradients(x, g, f, -8, 7)
    assert same_bits(found[0], expected[0])
    assert same_bits(found[1], expected[1])


def aligned_like(x):
    memory = np.empty(x.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + x.nbytes].view(np.float32).reshape(x.shape)


@pytest.mark.parametrize("offset", range(5))
def test_unaligned_memory(offset) -> None:
    memory = np.linspace(-2, 2, 5003, dtype=np.float32)
    x, g = memory[offset : offset + 4900], memory[offset + 50 : offset + 4950]
    out = np.empty(4905, np.float32)[offset : offset + 4900]
    expected = plain.quantize_gradients(x, g, 4, -8, 7)
    assert same_bits(kernels.quantize(x, 4, -8, 7), plain.quantize(x, 4, -8, 7))
    found = kernels.quantize_gradients(x, g, 4, -8, 7, out=out)
    assert found[0] is out
    assert same_bits(out, expected[0])
    assert same_bits(found[1], expected[1])


def test_ties_ends_and_infinities() -> None:
    x = np.array([-np.inf, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 9, np.inf, np.nan], np.float32)
    expected = {
        "half_even": [-4, -2, -2, 0, 0, 2, 2, 3, 3, np.nan],
        "half_up": [-4, -2, -1, 0, 1, 2, 3, 3, 3, np.nan],
        "half_away": [-4, -3, -2, -1, 1, 2, 3, 3, 3, np.nan],
        "floor": [-4, -3, -2, -1, 0, 1, 2, 3, 3, np.nan],
        "double": [-4, -3, -2, -1, 1, 2, 3, 3, 3, np.nan],
    }
    for rounding, values in expected.items():
        np.testing.assert_array_equal(kernels.quantize(x, 0, -4, 3, rounding), values)


def test_floor_of_what_vanishes_when_scaled() -> None:
    x = np.array([-1e-45, -1e-30, 1e-45], np.float32)
    f = np.array([-126, -126, 3])
    assert kernels.quantize(x, f, -8, 7, "floor").tolist() == [-(2.0**126), -(2.0**126), 0]


def test_a_nan_shows_in_both_gradients() -> None:
    x, g = np.array([1, np.nan, 9], np.float32), np.array([2, 3, 4], np.float32)
    gx, gt = kernels.quantize_gradients(x, g, 0, -4, 3)
    assert gx.tolist() == [2, 3, 0]
    assert np.isnan(gt)


def test_writes_to_the_given_path() -> None:
    x = np.linspace(-2, 2, 3001, dtype=np.float32)
    g = np.cos(x)
    expected = plain.quantize(x, 3, -8, 7)
    y = x.copy()
    assert kernels.quantize(y, 3, -8, 7, out=y) is y
    assert same_bits(y, expected)
    gx, gt = plain.quantize_gradients(x, g, 3, -8, 7)
    for given_out in (0, 1):
        arrays = [x.copy(), g.copy()]
        found = kernels.quantize_gradients(*arrays, 3, -8, 7, out=arrays[given_out])
        assert found[0] is arrays[given_out]
        assert same_bits(found[0], gx)
        assert same_bits(found[1], gt)


def test_overlapping_memory() -> None:
    memory = np.linspace(-2, 2, 101, dtype=np.float32)
    expected = plain.quantize(memory[:-1], 3, -8, 7)
    assert same_bits(kernels.quantize(memory[:-1], 3, -8, 7, out=memory[1:]), expected)


@pytest.mark.parametrize(
    "arguments",
    [
        (127, 0, 1),
        (-127, 0, 1),
        (np.array([0, 0, 127]), 0, 1),
        (np.array([0, 0]), 0, 1),
        (0.5, 0, 1),
        (0, 1, 2),
        (0, -2, -1),
        (0, 0, 1, "up"),
        (0, 0, 1, "floor", np.empty(4, np.float32)),
        (0, 0, 1, "floor", np.empty(3)),
        (0, 0, 1, "floor", np.empty(6, np.float32)[::2]),
    ],
)
def test_refusals(arguments) -> None:
    x = np.zeros(3, np.float32)
    with pytest.raises(ValueError):
        kernels.quantize(x, *arguments)
    with pytest.raises(ValueError):
        kernels.quantize_gradients(x, x, *arguments)


def test_gradients_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="shaped as x"):
        kernels.quantize_gradients(np.zeros(3, np.float32), np.zeros(4, np.float32), 0, 0, 1)


def test_a_forked_process_has_threads_again(threads) -> None:
    x = np.ones(BIG, np.float32)
    kernels.quantize(x, 3, -8, 7)
    child = os.fork()
    if child == 0:
        same = same_bits(kernels.quantize(x, 3, -8, 7), plain.quantize(x, 3, -8, 7))
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_vectors() -> None:
    for case in json.loads(vector_file("quantizer.json").read_text()):
        b, signed = case["bits"], case["signed"]
        f = exponent_of(np.float32(case["log2_t"]), b, signed)
        lo, hi = (-(2 ** (b - 1)), 2 ** (b - 1) - 1) if signed else (0, 2**b - 1)
        x, g = np.array(case["x"], np.float32), np.array(case["g"], np.float32)
        assert kernels.quantize(x, f, lo, hi).tolist() == case["value"]
        gx, gt = kernels.quantize_gradients(x, g, f, lo, hi)
        assert gx.tolist() == case["grad_x"]
        assert gt == pytest.approx(case["grad_log2_t"], rel=1e-6)
