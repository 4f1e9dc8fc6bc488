"""The native library refuses numbers that name no enumerator: they must not become an index."""

import numpy as np
import pytest

from qgraph import kernels

native = pytest.importorskip("qgraph._native")
pytestmark = pytest.mark.skipif(kernels.native_engine() is None, reason="no native library")


@pytest.mark.parametrize("number", [-1, 5, 1 << 30])
def test_a_number_of_no_rounding(number: int) -> None:
    x, y, f = np.zeros(4, np.float32), np.zeros(4, np.float32), np.zeros(1, np.int32)
    with pytest.raises(ValueError, match=r"unknown rounding -?\d+; there are 5"):
        native.quantize(x, f, -128.0, 127.0, number, y)


@pytest.mark.parametrize("number", [-1, len(kernels.NATIVE_LEVELS), 99])
def test_a_number_of_no_level(number: int) -> None:
    there = rf"there are {len(kernels.NATIVE_LEVELS)}$"
    with pytest.raises(ValueError, match=rf"unknown level -?\d+; {there}"):
        native.engine.supports(number)


def test_a_number_of_no_instruction_set() -> None:
    with pytest.raises(ValueError, match=r"unknown instruction set -?\d+; there are 3"):
        native.choose(3)
