"""Range and histogram of a tensor whose chunks arrive one by one."""

from __future__ import annotations

import threading

import numpy as np

from qgraph import kernels
from qgraph.ir.types import Array
from qgraph.quant.peers import Peers
from qgraph.quant.thresholds import (
    LOG2_BINS,
    Counts,
    Distribution,
    Histogram,
    Range,
    ends_of,
    power_of,
    range_over,
)

HALF = 1 << LOG2_BINS


class RunningTensor:
    """Collects chunks; `result` equals that of `histogram_of` on all of them together.

    When the range grows, bins are merged into wider ones. It is thread-safe. counted: whether to
    compute a histogram.
    """

    def __init__(self, counted: bool) -> None:
        self._lock = threading.Lock()
        self._counted = counted
        self._counts: Counts = np.zeros(2, np.int64)
        self._log2_width = 0
        self._zeros = 0
        self._ends: list[Range] = []

    def add(self, x: Array, known: Range | None = None) -> None:
        """Add a chunk, whose range may be known. NaN and infinity are reported by `result`."""
        ends = known or ends_of(x)
        if ends is None:
            return
        self._ends.append(ends)
        low, high = ends
        if self._counted and np.isfinite(low) and np.isfinite(high):
            self._count(np.asarray(x, np.float32), max(-low, high))

    def join(self, peers: Peers) -> None:
        """Add what other processes have looked at; they join this one too."""
        if peers.count == 1:
            return
        state = self._counts, self._log2_width, self._zeros, self._ends
        for index, (counts, log2_width, zeros, ends) in enumerate(peers.gathered(state)):
            if index != peers.index:
                self._zeros += zeros
                self._ends += ends
                if counts.any():
                    self._take(np.array(counts), log2_width)

    def result(self, name: str) -> Distribution:
        """The tensor so far. Raises CalibrationError for NaN, infinity, or no elements."""
        low, high = range_over(self._ends, name)
        if not self._counted:
            return Distribution((low, high))
        power = power_of(max(-low, high))
        counts = _regrouped(self._counts, power - LOG2_BINS - self._log2_width, HALF)
        return Distribution((low, high), Histogram(counts, self._zeros, power, low, high))

    def _count(self, x: Array, largest: float) -> None:
        if not largest:
            with self._lock:
                self._zeros += x.size
            return
        power = power_of(largest)
        # If the range grows, a number of exactly 2^power leaves the last bin.
        beyond = int(largest == 2.0**power)
        counts = kernels.histogram(x, power + beyond, LOG2_BINS + beyond)
        with self._lock:
            self._zeros += x.size - int(counts.sum())
            self._take(counts, power - LOG2_BINS)

    def _take(self, counts: Counts, log2_width: int) -> None:
        if not self._counts.any():
            self._counts, self._log2_width = counts, log2_width
            return
        width = max(log2_width, self._log2_width)
        both = (
            _regrouped(held, width - own)
            for held, own in ((self._counts, self._log2_width), (counts, log2_width))
        )
        shorter, longer = sorted(both, key=len)
        spare = (len(longer) - len(shorter)) // 2
        longer[spare : len(longer) - spare] += shorter
        self._counts, self._log2_width = longer, width


def _regrouped(counts: Counts, shift: int, half: int | None = None) -> Counts:
    """Counts in bins 2^shift times as wide, with up to `half` bins on each side of zero. Values
    beyond are counted in the end bins.
    """
    own = len(counts) // 2
    if shift == 0 and half in (None, own):
        return counts
    half = half or max(own >> shift, 1)
    index = np.clip(np.arange(-own, own) >> shift, -half, half - 1) + half
    return np.bincount(index, counts, 2 * half).astype(np.int64)
