"""Chunks counted one by one give the histogram of all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import CalibrationError
from qgraph.quant.running_tensor import RunningTensor
from qgraph.quant.thresholds import histogram_of, range_of

SIZES = st.lists(st.sampled_from([2.0**-30, 0.25, 0.3, 0.9, 1.0, 4.0, 5.5, 100.0, 0.0]), min_size=1)


def same(chunks: list[np.ndarray]) -> None:
    running = RunningTensor(counted=True)
    for chunk in chunks:
        running.add(chunk)
    found, extremes = running.result("t"), range_of(chunks, "t")
    wanted = histogram_of(chunks, *extremes)
    assert found.range == extremes
    assert found.histogram is not None
    np.testing.assert_array_equal(found.histogram.counts, wanted.counts)
    assert (found.histogram.zeros, found.histogram.power) == (wanted.zeros, wanted.power)
    assert (found.histogram.low, found.histogram.high) == extremes


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(0, 3))
def test_ranges_that_grow_and_shrink(sizes: list[float], seed: int) -> None:
    """Also where a chunk's greatest value is a power of two, the edge of a bin later on."""
    rng = np.random.default_rng(seed)
    chunks = []
    for size in sizes:
        chunk = rng.uniform(-1, 1, 40).astype(np.float32) * np.float32(size)
        chunk[:3] = size, -size, 0
        chunks.append(rng.permutation(chunk[seed:]))
    same(chunks)


def test_zeros_and_empty_chunks() -> None:
    zeros = np.zeros(5, np.float32)
    same([zeros, zeros])
    same([zeros, np.zeros(0, np.float32), np.float32([3, -0.0]), zeros])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_reported_at_the_end(bad: float) -> None:
    running = RunningTensor(counted=True)
    running.add(np.float32([1, bad]))
    running.add(np.float32([2]))
    with pytest.raises(CalibrationError, match="NaN or infinite"):
        running.result("t")
    with pytest.raises(CalibrationError, match="no elements"):
        RunningTensor(counted=False).result("t")


def test_without_a_histogram_there_is_only_a_range() -> None:
    running = RunningTensor(counted=False)
    running.add(np.float32([1, -2]))
    running.add(np.float32([7]), (7.0, 7.0))
    found = running.result("t")
    assert found.range == (-2.0, 7.0) and found.histogram is None
