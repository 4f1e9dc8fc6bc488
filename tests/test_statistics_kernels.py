"""Sums and counts of float32 arrays, by the native kernels and in numpy."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph import kernels
from qgraph.kernels import plain
from qgraph.kernels.plain import Float32


@pytest.mark.parametrize("shape", [(5, 7, 3), (100, 65), (300, 1), (33, 64), (4, 9, 200), (0, 4)])
def test_channel_sums_add_position_after_position(shape: tuple[int, ...]) -> None:
    """The order counts: these numbers are of very different size."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=shape) * 10.0 ** rng.integers(-9, 9, shape)).astype(np.float32)
    wanted = np.zeros(shape[-1])
    for row in x.reshape(-1, shape[-1]):
        wanted += row
    np.testing.assert_array_equal(kernels.channel_sums(x), wanted)
    np.testing.assert_array_equal(kernels.channel_sums(np.asfortranarray(x)), wanted)
    if x.size:
        np.testing.assert_array_equal(plain.channel_sums(x), wanted)
    with pytest.raises(TypeError):
        kernels.channel_sums(x.astype(np.float64))


@pytest.mark.parametrize("shape", [(5, 7, 3), (100, 65), (300, 1), (4, 9, 200), (0, 4)])
def test_channel_squares_add_position_after_position(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=shape) * 10.0 ** rng.integers(-9, 9, shape)).astype(np.float32)
    centre = rng.normal(size=shape[-1])
    wanted = np.zeros(shape[-1])
    for row in x.reshape(-1, shape[-1]):
        wanted += (row - centre) ** 2
    np.testing.assert_array_equal(kernels.channel_squares(x, centre), wanted)
    if x.size:
        np.testing.assert_array_equal(plain.channel_squares(x, centre), wanted)
    with pytest.raises(ValueError, match="centre"):
        kernels.channel_squares(x, centre[:-1])


def in_lanes(values: npt.NDArray[np.float64]) -> float:
    """Every 32nd value is added up in turn, then these sums."""
    lanes = [0.0] * 32
    for i, value in enumerate(values.tolist()):
        lanes[i % 32] += value
    total = 0.0
    for lane in lanes:
        total += lane
    return total


@given(st.integers(0, 100), st.integers(0, 2**32 - 1))
def test_squares_add_lane_after_lane(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (
        (rng.normal(size=count) * 10.0 ** rng.integers(-9, 9, count)).astype(np.float32)
        for _ in range(2)
    )
    found = kernels.squares(x, y)
    assert found == plain.squares(x, y)
    exact = x.astype(np.float64)
    assert found == (in_lanes(exact**2), in_lanes((y - exact) ** 2))
    with pytest.raises(ValueError, match="shapes differ"):
        kernels.squares(x, np.zeros(count + 1, np.float32))


@given(
    hnp.arrays(np.float32, (3, 11), elements=st.floats(width=32)),
    *(st.sampled_from([-2.5, 0.0, 0.1, 1e-45, 3.0, np.inf]) for _ in range(3)),
)
def test_tails_are_numpys(x: Float32, low: float, high: float, small: float) -> None:
    found = kernels.tails(x, low, high, small)
    assert found == plain.tails(x, low, high, small)
    wide = x.astype(np.float64)  # numpy would round the limits to float32
    assert found == ((wide < low).sum(), (wide > high).sum(), (np.abs(wide) < small).sum())
