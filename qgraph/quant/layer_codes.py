"""Codes of one layer's weights, chosen for the layer's output.

Samples are few, and may be of another kind than what the network will meet: what is quiet in them
would leave weights free. So inputs that batch norms remember count too, beside those seen: channels
on their own, each with the mean and deviation of training.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qgraph.ir.types import Array, Moments, QuantSpec
from qgraph.numerics import ROUND
from qgraph.parallel import Each
from qgraph.quant.layer_rows import LayerRows
from qgraph.quant.output_moments import (
    OutputErrors,
    OutputMoments,
    RowErrors,
    cross_moments,
    second_moments,
)
from qgraph.quant.rounding import QuadraticError
from qgraph.rewrite.constants import Float64

# Inputs solved for at once.
BLOCK = 4096
# Pull towards the float weights, as a share of the mean squared input.
RIDGE = 0.01
# What batch norms remember counts as so many times the samples.
REMEMBERED = 0.3


@dataclass(frozen=True)
class RoundedWeights:
    """Weights on a grid, [groups, k, n], and their squared errors, [groups, n].

    What inputs that are only remembered would add is in the errors; `seen` are those of rows
    judged without it.
    """

    weights: Float64
    used: Float64
    judged: Float64
    seen: Float64


@dataclass(frozen=True)
class LayerCodes:
    """A layer whose weights w [groups, k, n] are to be rounded.

    `used` and `judged` are errors on those rows. `known`: moments of x in training, [groups, k];
    None where unknown.
    """

    rows: LayerRows
    w: Float64
    used: OutputErrors
    judged: OutputErrors
    known: Moments | None

    @staticmethod
    def of(rows: LayerRows, w: Array, known: Moments | None, each: Each) -> LayerCodes:
        """w: the float weights, [groups, k, n]; known: moments of the layer's input by channel."""

        def errors(some: slice) -> OutputErrors:
            x, rest = rows.x[:, some], rows.rest[:, some]
            return RowErrors(x, rest) if w.shape[1] > BLOCK else OutputMoments.of(x, rest, each)

        used = errors(rows.used)
        judged = used if rows.used == rows.judged else errors(rows.judged)
        moments = None if known is None else _at_inputs(known, w.shape[0], w.shape[1])
        return LayerCodes(rows, w.astype(np.float64), used, judged, moments)

    def relative(self, choice: RoundedWeights) -> float:
        """The rms error on rows judged, relative to the float output's."""
        return float(np.sqrt(choice.seen.sum() / (self.rows.power or 1.0)))

    def nearest(self, spec: QuantSpec, each: Each) -> RoundedWeights:
        """Weights as the quantizer makes them."""
        unit = self._unit(spec)
        codes: Float64 = np.clip(ROUND[spec.rounding](self.w / unit), spec.lo, spec.hi)
        return self._choice(codes * unit, each)

    def solve(self, spec: QuantSpec, plain: RoundedWeights, each: Each) -> RoundedWeights:
        """Choose nearest codes or codes for the output, channel by channel.

        `plain`: nearest codes. Those for the output are taken where they have less error both on
        rows used and on rows judged.
        """
        rounded = self._choice(self._rounded(spec, each), each)
        better = (rounded.used < plain.used) & (rounded.judged < plain.judged)
        return RoundedWeights(
            np.where(better[:, None], rounded.weights, plain.weights),
            np.where(better, rounded.used, plain.used),
            np.where(better, rounded.judged, plain.judged),
            np.where(better, rounded.seen, plain.seen),
        )

    def _unit(self, spec: QuantSpec) -> Float64:
        """The value of one step, [groups, 1, n]."""
        groups, _, n = self.w.shape
        unit: Float64 = np.ldexp(np.ones(groups * n), -np.asarray(spec.exponent))
        return unit.reshape(groups, 1, n)

    def _choice(self, weights: Float64, each: Each) -> RoundedWeights:
        off = weights - self.w
        seen = self.judged.errors(off, each)
        used = seen if self.judged is self.used else self.used.errors(off, each)
        remembered, x = self._remembered(off), self.rows.x
        used = used + x[:, self.rows.used].shape[1] * remembered
        judged = seen + x[:, self.rows.judged].shape[1] * remembered
        return RoundedWeights(weights, used, judged, seen)

    def _remembered(self, off: Float64) -> Float64 | float:
        """Squared errors of remembered inputs, [groups, n], for each row of samples."""
        if self.known is None:
            return 0.0
        mean = np.einsum("gk,gkn->gn", self.known.mean, off)
        error = mean**2 + np.einsum("gk,gkn->gn", self.known.deviation**2, off**2)
        return np.asarray(REMEMBERED * error)

    def _rounded(self, spec: QuantSpec, each: Each) -> Float64:
        """Weights for the output."""
        if self._whole is None:
            return self._rounded_in_blocks(spec, each)
        error, wanted = self._whole
        return self._round(error, wanted, spec)

    @cached_property
    def _whole(self) -> tuple[QuadraticError, Float64] | None:
        """The error of all inputs at once and the weights with the least; None if they are many."""
        if not isinstance(self.used, OutputMoments):
            return None
        error = self._quadratic_error(self.used.inputs, slice(0, self.w.shape[1]))
        return error, self.w + np.linalg.solve(error.hessian, self.used.cross)

    def _rounded_in_blocks(self, spec: QuantSpec, each: Each) -> Float64:
        """Blocks of inputs in turn, the others as they are by then."""
        x, count = self.rows.x[:, self.rows.used], self.w.shape[1]
        rest, result = self.rows.rest[:, self.rows.used], self.w.copy()
        size = -(-count // -(-count // BLOCK))
        for block in (slice(i, min(i + size, count)) for i in range(0, count, size)):
            inputs = x[:, :, block]
            error = self._quadratic_error(second_moments(inputs, each), block)
            shift = np.linalg.solve(error.hessian, cross_moments(inputs, rest, each))
            result[:, block] = self._round(error, self.w[:, block] + shift, spec)
            rest = rest - inputs @ (result - self.w)[:, block].astype(inputs.dtype)
        return result

    def _round(self, error: QuadraticError, wanted: Float64, spec: QuantSpec) -> Float64:
        unit = self._unit(spec)
        return error.rounded(wanted / unit, spec.lo, spec.hi) * unit

    def _quadratic_error(self, inputs: Float64, block: slice) -> QuadraticError:
        """That of some inputs; inputs: their second moments over the rows used."""
        size = np.trace(inputs, axis1=1, axis2=2) / inputs.shape[1]
        ridge = np.where(size > 0, RIDGE * size, 1.0)
        hessian = inputs + ridge[:, None, None] * np.eye(inputs.shape[1])
        if self.known is not None:
            rows = self.rows.x[:, self.rows.used].shape[1]
            hessian += REMEMBERED * rows * _second_moments(self.known, block)
        return QuadraticError.of(hessian)


def _at_inputs(known: Moments, groups: int, inputs: int) -> Moments:
    """Moments of channels -> of each of the `inputs` of a product, [groups, inputs]."""

    def spread(values: Float64) -> Float64:
        of_group = values.reshape(groups, -1)
        return np.tile(of_group, (1, inputs // of_group.shape[1]))

    return Moments(spread(known.mean), spread(known.deviation))


def _second_moments(known: Moments, inputs: slice) -> Float64:
    """E[x x^T] of independent inputs, [groups, k, k]."""
    mean, deviation = known.mean[:, inputs], known.deviation[:, inputs]
    among: Float64 = mean[:, :, None] * mean[:, None, :]
    return among + (deviation**2)[:, :, None] * np.eye(mean.shape[1])
