"""Choose thresholds: power-of-two exponents from the histogram of a tensor.

Only `ceil(log2 t)` of a threshold t matters, so each method chooses among exponents: from the one
that clips nothing (MAX) to finer ones that clip more. Methods: `max`; `percentile` (clips 0.01 % of
the values); `mse`; `kl_j`, the symmetric Kullback-Leibler divergence J (Jeffreys) between the
distributions before and after quantization (TQT section 4.2). The method `output` considers later
layers: it is in `qgraph.quant.output_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from qgraph import kernels
from qgraph.choices import CalibrationMethod
from qgraph.errors import CalibrationError
from qgraph.ir.types import Array, QuantSpec
from qgraph.numerics import MAX_EXPONENT, exponent_for_max
from qgraph.parallel import Each

LOG2_BINS = 11
FINER_EXPONENTS = 10
PERCENTILE = 0.9999
SAMPLES_PER_BIN = 32
# The squared error that KL-J may accept for clipping, as a multiple of the least: 6 dB, and 12 dB
# if it clips at most one value in 5,000.
COSTLY, COSTLY_RARE, RARE = 4.0, 16.0, 2e-4
Counts = npt.NDArray[np.int64]
Range = tuple[float, float]


@dataclass(frozen=True)
class Histogram:
    """Counts in bins of equal width over [-2^power, 2^power), and the extremes.

    Exact zeros, which ReLU produces often, are counted separately: no quantizer changes them.
    """

    counts: Counts
    zeros: int
    power: int
    low: float
    high: float

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def log2_width(self) -> int:
        """log2 of the width of a bin."""
        return self.power + 1 - (len(self.counts).bit_length() - 1)

    def centres(self) -> Array:
        half = len(self.counts) // 2
        return np.asarray(np.ldexp(np.arange(-half, half) + 0.5, self.log2_width))

    def smoothed(self, levels: int) -> Histogram:
        """Merge bins until they have enough samples for a smooth density.

        At least two bins remain for each of `levels` steps over the whole range.
        """
        counts, total = self.counts, self.counts.sum()
        while len(counts) > 4 * levels and total < SAMPLES_PER_BIN * np.count_nonzero(counts):
            counts = counts.reshape(-1, 2).sum(axis=1)
        return replace(self, counts=counts)


def range_of(chunks: Sequence[Array], name: str, each: Each = map) -> Range:
    """Smallest and largest value over all chunks. Raises CalibrationError for NaN or infinity."""
    return range_over([*each(lambda i: ends_of(chunks[i]), range(len(chunks)))], name)


def ends_of(chunk: Array) -> Range | None:
    """Smallest and largest value of one chunk; empty for an empty chunk."""
    return kernels.minmax(np.asarray(chunk, np.float32)) if chunk.size else None


def range_over(ends: Sequence[Range | None], name: str) -> Range:
    """The range over chunks from the range of each. Raises CalibrationError for NaN or infinity."""
    known = [e for e in ends if e is not None]
    if not known:
        raise CalibrationError("has no elements to calibrate on", node=name)
    if not np.isfinite(known).all():
        raise CalibrationError(
            "NaN or infinite on the calibration data",
            node=name,
            hint="check the data first, then the float network",
        )
    return min(e[0] for e in known), max(e[1] for e in known)


def histogram_of(chunks: Sequence[Array], low: float, high: float, each: Each = map) -> Histogram:
    """Histogram over all chunks (float arrays), whose range is known."""
    power = power_of(max(abs(low), abs(high)))

    def count(i: int) -> tuple[Counts, int]:
        chunk = chunks[i]
        counts = kernels.histogram(np.asarray(chunk, np.float32), power, LOG2_BINS)
        return counts, chunk.size - int(counts.sum())

    parts = [*each(count, range(len(chunks)))]
    counts = np.sum([counts for counts, _ in parts], axis=0)
    return Histogram(counts, sum(zeros for _, zeros in parts), power, low, high)


def power_of(largest: float) -> int:
    """The exponent of the smallest power of two that is not below `largest`; 0 for zero."""
    return -exponent_for_max(largest, 0, False) if largest else 0


@dataclass(frozen=True)
class Distribution:
    """The smallest and largest value of a tensor, and its histogram if one was requested."""

    range: Range
    histogram: Histogram | None = None


def choose_exponent(tensor: Distribution, spec: QuantSpec, method: CalibrationMethod) -> int:
    """The exponent for a tensor with `spec`; every method except `max` uses its histogram.

    A tensor of zeros gets the scale of threshold 1.
    """
    low, high = tensor.range
    if method == CalibrationMethod.MAX or low == high == 0:
        return exponent_for_max(max(abs(low), abs(high)) or 1.0, spec.bits, spec.signed)
    assert tensor.histogram is not None
    return METHODS[method](tensor.histogram, spec)


def _max(histogram: Histogram, spec: QuantSpec) -> int:
    return exponent_for_max(histogram.largest, spec.bits, spec.signed)


def _percentile(histogram: Histogram, spec: QuantSpec) -> int:
    half = 1 << LOG2_BINS
    folded = histogram.counts[half:] + histogram.counts[:half][::-1]
    covered = histogram.zeros + np.cumsum(folded)
    kept = np.searchsorted(covered, PERCENTILE * covered[-1])
    threshold = np.ldexp(float(kept + 1), histogram.log2_width)
    return exponent_for_max(min(threshold, histogram.largest), spec.bits, spec.signed)


def candidates_from(coarsest: int, finer: int) -> Sequence[int]:
    """`coarsest`, and finer exponents that a scale may have."""
    if abs(coarsest) > MAX_EXPONENT:
        return [coarsest]  # later steps report the error
    return range(coarsest, min(coarsest + finer, MAX_EXPONENT) + 1)


def _search(
    cost: Callable[[Histogram, QuantSpec, int], float],
) -> Callable[[Histogram, QuantSpec], int]:
    def choose(histogram: Histogram, spec: QuantSpec) -> int:
        candidates = candidates_from(_max(histogram, spec), FINER_EXPONENTS)
        return min(candidates, key=lambda exponent: cost(histogram, spec, exponent))

    return choose


def _levels(centres: Array, spec: QuantSpec, exponent: int) -> Array:
    return np.clip(np.rint(np.ldexp(centres, exponent)), spec.lo, spec.hi)


def squared_error(histogram: Histogram, spec: QuantSpec, exponent: int) -> float:
    """Squared error of the step `2^-exponent`."""
    return error_of_step(histogram, spec, float(np.ldexp(1.0, -exponent)))


def error_of_step(histogram: Histogram, spec: QuantSpec, step: float) -> float:
    """Squared error; for a step finer than the bins, the usual step^2 / 12 inside the range."""
    centres = histogram.centres()
    error = np.clip(np.rint(centres / step), spec.lo, spec.hi) * step - centres
    if step <= np.ldexp(1.0, histogram.log2_width):
        clipped = np.abs(error) > step
        error = np.where(clipped, error, step / np.sqrt(12.0))
    return float((histogram.counts * error**2).sum())


def _kl_j(histogram: Histogram, spec: QuantSpec, exponent: int) -> float:
    """J between the histogram and its quantized form on the same bins.

    After quantization, the mass of a level is spread evenly over the bins within half a step of it
    that were not empty; bins beyond the clipping range are empty.
    """
    histogram = histogram.smoothed(spec.hi + 1)
    centres, counts = histogram.centres(), histogram.counts
    levels = _levels(centres, spec, exponent)
    index = (levels - spec.lo).astype(np.int64)
    inside = np.abs(np.ldexp(centres, exponent) - levels) <= 0.5
    if not (inside & (counts > 0)).any():  # nearly everything is clipped
        return np.inf
    size = spec.hi - spec.lo + 1
    mass = np.bincount(index, counts, size)
    filled = np.bincount(index, inside & (counts > 0), size)
    wide = np.bincount(index, inside, size)
    spread_over_all = inside & (filled[index] == 0)
    places = np.where(spread_over_all, wide[index], filled[index])
    stays = spread_over_all | (inside & (counts > 0))
    after = np.where(stays, mass[index] / np.maximum(places, 1), 0.0)
    total = float(counts.sum())
    tiny = 0.5 / total
    p, q = counts / total + tiny / counts.size, after / total + tiny / counts.size
    return float(((p - q) * np.log(p / q)).sum())


def _kl_j_exponent(histogram: Histogram, spec: QuantSpec) -> int:
    """The exponent with the least J among those that do not clip too much.

    J depends on how many values are clipped, not by how much: with a narrow peak that contains most
    values, or few values far from the others, it may clip too much. Therefore an exponent finer
    than the one of least squared error may have at most `COSTLY` times that error, or `COSTLY_RARE`
    times if it clips at most a share of `RARE`.
    """
    candidates = candidates_from(_max(histogram, spec), FINER_EXPONENTS)
    errors = {e: squared_error(histogram, spec, e) for e in candidates}
    best = min(errors, key=errors.__getitem__)

    def is_allowed(exponent: int) -> bool:
        rare = _clipped_share(histogram, spec, exponent) <= RARE
        limit = COSTLY_RARE if rare else COSTLY
        return exponent <= best or errors[exponent] <= limit * errors[best]

    return min(filter(is_allowed, candidates), key=lambda e: _kl_j(histogram, spec, e))


def _clipped_share(histogram: Histogram, spec: QuantSpec, exponent: int) -> float:
    """The share of nonzero values that change by more than a step."""
    centres = histogram.centres()
    moved = np.abs(np.ldexp(centres, exponent) - _levels(centres, spec, exponent)) > 1
    return float(histogram.counts[moved].sum() / max(histogram.counts.sum(), 1))


METHODS: Mapping[CalibrationMethod, Callable[[Histogram, QuantSpec], int]] = {
    CalibrationMethod.KL_J: _kl_j_exponent,
    CalibrationMethod.MAX: _max,
    CalibrationMethod.PERCENTILE: _percentile,
    CalibrationMethod.MSE: _search(squared_error),
}
