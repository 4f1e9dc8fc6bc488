"""Large float constants of an output directory, as bytes that compress well, without loss.

The bytes of the same significance of all numbers stand together: `planes/NAME`, uint8 [4, ...].
A constant whose codes are stored as well is `steps/NAME` instead: the same bytes of the number of
float32 values between the value of each code and the constant.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.ir.types import Array

CONSTANT, PLANES, STEPS = "constant/", "planes/", "steps/"
FEW_ELEMENTS = 128  # a constant with fewer is stored as it is
BITS = np.dtype("<u4")


def packed(arrays: Mapping[str, Array], of_codes: Mapping[str, Array]) -> dict[str, Array]:
    """Entries of a file: large float32 constants as bytes, other arrays as they are.

    Args:
        arrays: Arrays by entry; constants are `constant/NAME`.
        of_codes: The values of codes of constants, float32, by name.

    Returns:
        Arrays by entry.
    """
    entries: dict[str, Array] = {}
    for entry, array in arrays.items():
        name = entry.removeprefix(CONSTANT)
        large = array.dtype == np.float32 and array.size >= FEW_ELEMENTS
        if not large or not entry.startswith(CONSTANT):
            entries[entry] = array
        elif name in of_codes and of_codes[name].shape == array.shape:
            entries[STEPS + name] = _planes(_folded(_bits(array) - _bits(of_codes[name])))
        else:
            entries[PLANES + name] = _planes(_bits(array))
    return entries


def unpacked(arrays: Mapping[str, Array], of_codes: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays that `packed` received.

    Raises ValueError for bytes in another form, KeyError where codes are missing.
    """
    found: dict[str, Array] = {}
    for entry, array in arrays.items():
        if entry.startswith(PLANES):
            found[CONSTANT + entry.removeprefix(PLANES)] = _numbers(_joined(array))
        elif entry.startswith(STEPS):
            name = entry.removeprefix(STEPS)
            bits = _unfolded(_joined(array)) + _bits(of_codes[name])
            found[CONSTANT + name] = _numbers(bits)
        else:
            found[entry] = array
    return found


def _bits(array: Array) -> Array:
    """The bits of float32 numbers."""
    return np.ascontiguousarray(array, "<f4").view(BITS)


def _numbers(bits: Array) -> Array:
    return np.ascontiguousarray(bits).view("<f4").astype(np.float32, copy=False)


def _planes(bits: Array) -> Array:
    return np.moveaxis(bits.view(np.uint8).reshape(*bits.shape, BITS.itemsize), -1, 0)


def _joined(planes: Array) -> Array:
    if planes.dtype != np.uint8 or planes.ndim < 2 or len(planes) != BITS.itemsize:
        raise ValueError(f"bytes of dtype {planes.dtype} and shape {list(planes.shape)}")
    return np.ascontiguousarray(np.moveaxis(planes, 0, -1)).view(BITS)[..., 0]


def _folded(differences: Array) -> Array:
    """Differences modulo 2^32 with those near 0 as small numbers: 0, -1, 1, -2 as 0, 1, 2, 3."""
    return (differences << np.uint32(1)) ^ _all_bits(differences >> np.uint32(31))


def _unfolded(folded: Array) -> Array:
    return (folded >> np.uint32(1)) ^ _all_bits(folded & np.uint32(1))


def _all_bits(one: Array) -> Array:
    """All bits where `one` is 1, none where it is 0."""
    return np.where(one, np.uint32(0xFFFFFFFF), np.uint32(0))
