"""Statistics of the input of a quantizer: histogram, extremes, and clipped values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, nextafter

import numpy as np

from qgraph import kernels
from qgraph.ir.types import Array, QuantSpec
from qgraph.numerics import aligned, exponent_for_max
from qgraph.quant.thresholds import LOG2_BINS, Counts, Histogram, histogram_of, squared_error

BINS_KEPT = 64


@dataclass(frozen=True)
class Statistics:
    """Statistics of a float tensor before its quantizer; `below` and `above` count clipped values.

    A value is clipped if it changes by more than a step: 1.0, stored as 255/256, is not clipped.
    `vanished` counts nonzero values below half a step.
    """

    histogram: Histogram
    elements: int
    below: int
    above: int
    vanished: int

    def sqnr(self, spec: QuantSpec, exponent: int) -> float:
        """The SQNR in dB of a quantizer with this exponent alone, estimated from the histogram."""
        counts, centres = self.histogram.counts, self.histogram.centres()
        noise = squared_error(self.histogram, spec, exponent)
        return decibel(float((counts * centres**2).sum()), noise)

    def max_exponent(self, spec: QuantSpec) -> int | None:
        """The finest exponent whose threshold is at least every element; None if all are zero."""
        largest = self.histogram.largest
        return exponent_for_max(largest, spec.bits, spec.signed) if largest else None

    def few_bins(self, most: int = BINS_KEPT) -> tuple[int, int, list[int]]:
        """(first, log2 of the width, counts): bin i starts at `(first + i) * width`."""
        counts = self.histogram.counts
        places = np.flatnonzero(counts) - len(counts) // 2
        if not len(places):
            return 0, 0, []
        doublings = 0
        while (places[-1] >> doublings) - (places[0] >> doublings) >= most:
            doublings += 1
        first = int(places[0] >> doublings)
        found = np.bincount((places >> doublings) - first, counts[counts != 0])
        return first, self.histogram.log2_width + doublings, [*map(int, found)]


def past_ends(values: Array, spec: QuantSpec) -> tuple[int, int]:
    """The numbers of values below and above the range of `spec`, by more than a step."""
    below, above, _ = _tails(values, spec)
    return below, above


def _tails(values: Array, spec: QuantSpec) -> tuple[int, int, int]:
    """The numbers of values that `past_ends` counts, and of those that round to zero."""
    codes = (spec.lo - 1.0, spec.hi + 1.0, 0.5)
    if isinstance(spec.exponent, int) and values.dtype == np.float32:
        low, high, small = (float(np.ldexp(code, -spec.exponent)) for code in codes)
        return kernels.tails(values, low, high, small)
    exponent = spec.exponent
    assert exponent is not None
    shifts = exponent if isinstance(exponent, int) else aligned(exponent, values.shape)
    low, high, small = (np.ldexp(code, -np.asarray(shifts)) for code in codes)
    counted = (values < low, values > high, np.abs(values) < small)
    found = [int(np.count_nonzero(c)) for c in counted]
    return found[0], found[1], found[2]


def statistics_of(values: Array, spec: QuantSpec) -> Statistics | None:
    """Statistics of values before a quantizer with `spec`; None if empty or not finite."""
    values = np.asarray(values, np.float32)
    low, high = kernels.minmax(values) if values.size else (inf, inf)
    if not np.isfinite([low, high]).all():
        return None
    below, above, small = _tails(values, spec)
    # Above the greatest element, so that a value at the edge is not counted below it.
    histogram = histogram_of([values], low, nextafter(high, inf) if high > 0 else high)
    histogram = replace(histogram, high=high)
    return Statistics(histogram, values.size, below, above, small - histogram.zeros)


def joined(parts: Sequence[Statistics]) -> Statistics:
    """Statistics of all parts together. Bin widths are powers of two, so no bin has to be split."""
    histograms = [p.histogram for p in parts]
    powers = [h.power for h in histograms if h.largest]
    power = max(powers, default=0)
    return Statistics(
        Histogram(
            np.sum([_widened(h.counts, power - h.power) for h in histograms], axis=0),
            sum(h.zeros for h in histograms),
            power,
            min(h.low for h in histograms),
            max(h.high for h in histograms),
        ),
        sum(p.elements for p in parts),
        sum(p.below for p in parts),
        sum(p.above for p in parts),
        sum(p.vanished for p in parts),
    )


def _widened(counts: Counts, doublings: int) -> Counts:
    """The same counts over a range `2^doublings` times as wide."""
    half = len(counts) // 2
    size = 1 << min(max(doublings, 0), LOG2_BINS)
    near = counts.reshape(-1, size).sum(axis=1)
    wide = np.zeros_like(counts)
    wide[half - len(near) // 2 : half + len(near) // 2] = near
    return wide


def decibel(signal: float, noise: float) -> float:
    """Signal-to-noise ratio in dB; infinite without noise."""
    if noise == 0:
        return float("inf")
    return float(10 * np.log10(signal / noise)) if signal > 0 else float("-inf")
