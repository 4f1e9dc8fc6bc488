"""Large float constants are stored as bytes that compress better, and come back bit for bit."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as any_array

from qgraph.stored.float_constants import FEW_ELEMENTS, packed, unpacked

SHAPE = (3, FEW_ELEMENTS)
BITS = any_array(np.uint32, SHAPE, elements=st.integers(0, 2**32 - 1))


@given(BITS, BITS)
def test_every_bit_comes_back(one, other):
    """Also NaNs with their bits, infinities, zeros with a sign, and codes far from the numbers."""
    held, base = one.view(np.float32), other.view(np.float32)
    for of_codes in ({}, {"w": base}, {"w": base[:1]}):
        entries = packed({"constant/w": held}, of_codes)
        (found,) = unpacked(entries, of_codes).values()
        assert found.dtype == np.float32 and found.shape == SHAPE
        np.testing.assert_array_equal(found.view(np.uint32), one)


def test_the_kind_of_each_array():
    w = np.ones(SHAPE, np.float32)
    arrays = {
        "constant/coded": w,
        "constant/float": w,
        "constant/small": w[0, :-1],
        "constant/index": w.astype(np.int32),
        "source/constant/op": w,
    }
    of_codes = {"coded": w, "small": w[0, :-1]}
    entries = packed(arrays, of_codes)
    changed = {"steps/coded", "planes/float"}
    assert entries.keys() == {*changed, *list(arrays)[2:]}
    assert all(entries[name].shape == (4, *SHAPE) for name in changed)
    assert unpacked(entries, of_codes).keys() == arrays.keys()


def test_bytes_of_trained_weights_are_fewer():
    rng = np.random.default_rng(0)
    w = rng.normal(0, 0.1, (64, 64)).astype(np.float32)
    on_grid = (np.rint(w * 256) / 256).astype(np.float32)

    def size(entries):
        return sum(len(zlib.compress(array.tobytes())) for array in entries.values())

    plain, planes = size({"w": w}), size(packed({"constant/w": w}, {}))
    steps = size(packed({"constant/w": w}, {"w": on_grid}))
    assert steps < planes - 0.15 * w.nbytes and planes < plain


@pytest.mark.parametrize(
    "array", [np.zeros((4, 200), np.int8), np.zeros(4, np.uint8), np.zeros((3, 200), np.uint8)]
)
def test_other_bytes_are_refused(array):
    with pytest.raises(ValueError, match="bytes of dtype"):
        unpacked({"planes/w": array}, {})
