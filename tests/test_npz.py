"""Arrays in a `.npz`: equal arrays give equal bytes, however they lie in memory."""

import io

import numpy as np
import pytest

from qgraph.npz import hash_of, npz_bytes

ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
WIDE = np.zeros((4, 3, 8), np.float32)
WIDE[::2, :, ::2] = ARRAY
LYING = {
    "in Fortran's order": np.asfortranarray(ARRAY),
    "with gaps": WIDE[::2, :, ::2],
    "backwards": ARRAY[::-1].copy()[::-1],
    "transposed": ARRAY.transpose(2, 0, 1).copy().transpose(1, 2, 0),
}


@pytest.mark.parametrize("how", LYING)
def test_equal_arrays_give_equal_bytes(how: str) -> None:
    assert npz_bytes({"x": LYING[how]}) == npz_bytes({"x": ARRAY})
    assert hash_of({"x": LYING[how]}) == hash_of({"x": ARRAY})


def test_numpy_reads_them() -> None:
    arrays = {"x": np.asfortranarray(ARRAY), "scalar": np.float32(3), "empty": np.zeros((0, 2))}
    with np.load(io.BytesIO(npz_bytes(arrays))) as found:
        for name, array in arrays.items():
            assert found[name].shape == array.shape and np.array_equal(found[name], array)
