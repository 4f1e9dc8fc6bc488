"""Choose codes of a layer's weights so that its output is close to the float output.

Samples are few and may differ from later inputs. If an input is nearly constant on the samples,
they do not determine its weights. Therefore the statistics of batch norms count too, besides the
samples: each channel independently, with its mean and deviation in training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from qgraph.ir.types import Array, Moments, QuantSpec
from qgraph.kernels.rounding import round_numbers
from qgraph.parallel import Each
from qgraph.quant.reconstruction.layer_rows import LayerRows
from qgraph.quant.reconstruction.output_moments import (
    OutputErrors,
    OutputMoments,
    RowErrors,
    cross_moments,
    second_moments,
)
from qgraph.quant.reconstruction.rounding import QuadraticError
from qgraph.rewrite.constants import Float64

# Number of inputs whose codes are solved together.
BLOCK = 4096
# Regularization towards the float weights, as a share of the mean squared input.
RIDGE = 0.01
# Weight of batch-norm statistics, relative to the samples.
STATISTICS_WEIGHT = 0.3


@dataclass(frozen=True)
class RoundedWeights:
    """Weights on a grid, [groups, k, n], and their squared errors, [groups, n].

    The errors include those from batch-norm statistics; `seen` are the errors on the rows
    `checked` alone.
    """

    weights: Float64
    used: Float64
    checked: Float64
    seen: Float64


@dataclass(frozen=True)
class LeastError:
    """The error of the weights of some inputs, and the best real weights, [groups, k, n].

    With few samples, the weights of least error overfit these samples. Therefore their distance
    from the float weights is multiplied by the share that gives the least error on rows `checked`.
    """

    error: QuadraticError
    weights: Float64

    @staticmethod
    def of(
        hessian: Float64, w: Float64, cross: Float64, checked: OutputErrors | None, each: Each
    ) -> LeastError:
        """cross: see `OutputMoments`. checked: None if no rows are held out.

        Computes two factorizations in two threads.
        """

        def factorized() -> QuadraticError:
            return QuadraticError.of(hessian)

        def solved() -> Float64:
            return np.asarray(np.linalg.solve(hessian, cross))

        error, found = each(lambda work: work(), (factorized, solved))
        off = cast(Float64, found)
        share = 1.0 if checked is None else checked.best_share(off, each)
        return LeastError(cast(QuadraticError, error), w + share * off)


@dataclass(frozen=True)
class LayerCodes:
    """A layer whose weights w [groups, k, n] are to be rounded.

    `used` and `checked`: errors on these rows. `known`: moments of x in training, [groups, k];
    None if unknown. `least`: the minimum of the error; None if there are too many inputs.
    """

    rows: LayerRows
    w: Float64
    used: OutputErrors
    checked: OutputErrors
    known: Moments | None
    least: LeastError | None

    @staticmethod
    def of(rows: LayerRows, w: Array, known: Moments | None, each: Each) -> LayerCodes:
        """w: the float weights, [groups, k, n]; known: moments of the layer's input by channel."""

        def errors(some: slice) -> OutputErrors:
            x, rest = rows.x[:, some], rows.rest[:, some]
            return RowErrors(x, rest) if w.shape[1] > BLOCK else OutputMoments.of(x, rest, each)

        used = errors(rows.used)
        checked = used if rows.used == rows.checked else errors(rows.checked)
        moments = None if known is None else _at_inputs(known, w.shape[0], w.shape[1])
        if moments is not None:
            moments = Moments(moments.mean - rows.centre, moments.deviation)
        wide, least = w.astype(np.float64), None
        if isinstance(used, OutputMoments):
            hessian = _hessian(used.inputs, rows, moments, slice(0, w.shape[1]))
            held_out = None if checked is used else checked
            least = LeastError.of(hessian, wide, used.cross, held_out, each)
        return LayerCodes(rows, wide, used, checked, moments, least)

    def relative(self, choice: RoundedWeights) -> float:
        """The RMS error on the rows `checked`, relative to the float output."""
        return float(np.sqrt(choice.seen.sum() / (self.rows.power or 1.0)))

    def nearest(self, spec: QuantSpec, each: Each) -> RoundedWeights:
        """Weights rounded to nearest."""
        unit = self._unit(spec)
        codes: Float64 = np.clip(round_numbers(self.w / unit, spec.rounding), spec.lo, spec.hi)
        return self._choice(codes * unit, each)

    def clipped(self, spec: QuantSpec) -> float:
        """The share of weights that exceed the range of `spec` by more than half a step."""
        steps = self.w / self._unit(spec)
        return float(((steps < spec.lo - 0.5) | (steps > spec.hi + 0.5)).mean())

    def solve(self, spec: QuantSpec, plain: RoundedWeights, each: Each) -> RoundedWeights:
        """Choose, for each channel, nearest codes or codes that are optimized for the output.

        plain: nearest codes. Optimized codes are chosen if they have less error both on the rows
        `used` and on the rows `checked`.
        """
        rounded = self._choice(self._rounded(spec, each), each)
        better = (rounded.used < plain.used) & (rounded.checked < plain.checked)
        return RoundedWeights(
            np.where(better[:, None], rounded.weights, plain.weights),
            np.where(better, rounded.used, plain.used),
            np.where(better, rounded.checked, plain.checked),
            np.where(better, rounded.seen, plain.seen),
        )

    def _unit(self, spec: QuantSpec) -> Float64:
        """The value of one step, [groups, 1, n]."""
        groups, _, n = self.w.shape
        unit: Float64 = np.ldexp(np.ones(groups * n), -np.asarray(spec.exponent))
        return unit.reshape(groups, 1, n)

    def _choice(self, weights: Float64, each: Each) -> RoundedWeights:
        off = weights - self.w
        seen = self.checked.errors(off, each)
        used = seen if self.checked is self.used else self.used.errors(off, each)
        remembered, x = self._remembered(off), self.rows.x
        used = used + x[:, self.rows.used].shape[1] * remembered
        checked = seen + x[:, self.rows.checked].shape[1] * remembered
        return RoundedWeights(weights, used, checked, seen)

    def _remembered(self, off: Float64) -> Float64 | float:
        """Squared errors from batch-norm statistics, [groups, n], for each row of samples."""
        if self.known is None:
            return 0.0
        mean = np.einsum("gk,gkn->gn", self.known.mean, off)
        error = mean**2 + np.einsum("gk,gkn->gn", self.known.deviation**2, off**2)
        return np.asarray(STATISTICS_WEIGHT * error)

    def _rounded(self, spec: QuantSpec, each: Each) -> Float64:
        """Weights that are optimized for the output."""
        if self.least is None:
            return self._rounded_in_blocks(spec, each)
        return self._round(self.least, spec)

    def _rounded_in_blocks(self, spec: QuantSpec, each: Each) -> Float64:
        """Optimize blocks of inputs in turn, with the current weights of the others."""
        used, checked = self.rows.used, self.rows.checked
        x, count = self.rows.x, self.w.shape[1]
        rest, result = self.rows.rest, self.w.copy()
        size = -(-count // -(-count // BLOCK))
        for block in (slice(i, min(i + size, count)) for i in range(0, count, size)):
            inputs = x[:, :, block]
            moments = second_moments(inputs[:, used], each)
            hessian = _hessian(moments, self.rows, self.known, block)
            cross = cross_moments(inputs[:, used], rest[:, used], each)
            held_out = None if used == checked else RowErrors(inputs[:, checked], rest[:, checked])
            least = LeastError.of(hessian, self.w[:, block], cross, held_out, each)
            result[:, block] = self._round(least, spec)
            rest = rest - inputs @ (result - self.w)[:, block].astype(inputs.dtype)
        return result

    def _round(self, least: LeastError, spec: QuantSpec) -> Float64:
        unit = self._unit(spec)
        return least.error.rounded(least.weights / unit, spec.lo, spec.hi) * unit


def _hessian(inputs: Float64, rows: LayerRows, known: Moments | None, block: slice) -> Float64:
    """The Hessian of the error of some inputs; inputs: their second moments over rows used."""
    size = np.trace(inputs, axis1=1, axis2=2) / inputs.shape[1]
    hessian = inputs.copy()
    _add_to_diagonal(hessian, np.where(size > 0, RIDGE * size, 1.0)[:, None])
    if known is not None:
        remembered = _second_moments(known, block)
        remembered *= STATISTICS_WEIGHT * rows.x[:, rows.used].shape[1]
        hessian += remembered
    return hessian


def _add_to_diagonal(matrices: Float64, numbers: Float64) -> None:
    """Add to diagonals in place; matrices [groups, k, k], numbers [groups, k] or [groups, 1]."""
    np.einsum("gkk->gk", matrices)[...] += numbers


def _at_inputs(known: Moments, groups: int, inputs: int) -> Moments:
    """Moments of each of the `inputs` of a product, [groups, inputs], from those of channels."""

    def spread(values: Float64) -> Float64:
        of_group = values.reshape(groups, -1)
        return np.tile(of_group, (1, inputs // of_group.shape[1]))

    return Moments(spread(known.mean), spread(known.deviation))


def _second_moments(known: Moments, inputs: slice) -> Float64:
    """E[x x^T] of independent inputs, [groups, k, k]."""
    mean, deviation = known.mean[:, inputs], known.deviation[:, inputs]
    among: Float64 = mean[:, :, None] * mean[:, None, :]
    _add_to_diagonal(among, deviation**2)
    return among
