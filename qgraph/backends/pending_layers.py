"""Steps of a program that become one operator: a layer, its bias, its limits, one requantization.

An operator of TFLite or ONNX computes sums and requantizes them at once. Steps between are
collected in a `PendingLayer` until codes of 8 bits are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qgraph.ir.types import Array, Codes, Rounding
from qgraph.numerics import round_shift
from qgraph.program import Step
from qgraph.program.ops import ClipAttrs, RequantizeAttrs

Limit = int | Codes | None


@dataclass(frozen=True)
class PendingLayer:
    """Sums, products or codes of a tensor that have not been written yet.

    sums: the tensor of the program that is requantized, before limits. layer: the step that
    computes sums or products; None if `sums` are codes of a tensor. bias: constant codes added to
    the sums, one for each channel. factors: a constant map [1, h, w, 1] that the sums are
    multiplied with. low, high: limits in codes of `sums`, one or one for each channel; the lower
    limit is applied first.
    """

    sums: str
    layer: Step | None = None
    bias: Array | None = None
    factors: Array | None = None
    low: Limit = None
    high: Limit = None

    @property
    def limited(self) -> bool:
        return self.low is not None or self.high is not None

    def clipped(self, step: Step) -> PendingLayer:
        attrs = step.attrs_as(ClipAttrs)
        low, high = self.low, self.high
        if attrs.low is not None:
            limit = np.asarray(attrs.low, np.int64)
            low = limit if low is None else np.maximum(low, limit)
            high = None if high is None else np.maximum(high, limit)
        if attrs.high is not None:
            limit = np.asarray(attrs.high, np.int64)
            high = limit if high is None else np.minimum(high, limit)
        return replace(self, low=low, high=high)


@dataclass(frozen=True)
class LayerOutput:
    """The last part of an operator: a shift, and limits of the codes that it makes.

    name: the tensor. shift: one, or one for each channel. low, high: limits, one or one for each
    channel; inclusive, the lower limit is applied first.
    """

    name: str
    pending: PendingLayer
    shift: int | Codes
    rounding: Rounding
    low: Codes
    high: Codes

    @property
    def operands(self) -> tuple[str, str]:
        """The tensor that a layer works on, and the name of its weights."""
        step = self.pending.layer
        if step is None:  # weights of 1
            return self.pending.sums, f"{self.name}/ones"
        return step.inputs[0], step.inputs[1]

    @staticmethod
    def of(pending: PendingLayer, name: str, attrs: RequantizeAttrs) -> LayerOutput:
        """Limits are moved behind the requantization, which preserves the order of codes."""
        shift = np.asarray(attrs.shift, np.int64)

        def moved(limit: Limit, other: int) -> Codes:
            if limit is None:
                return np.asarray(other, np.int64)
            held = round_shift(np.asarray(limit, np.int64), shift, attrs.rounding)
            return _one(np.clip(held, attrs.low, attrs.high))

        return LayerOutput(
            name,
            pending,
            _one_shift(shift),
            attrs.rounding,
            moved(pending.low, attrs.low),
            moved(pending.high, attrs.high),
        )


def _one_shift(shift: Codes) -> int | Codes:
    return int(shift) if shift.ndim == 0 else shift


def _one(limit: Codes) -> Codes:
    """One number if all are equal."""
    flat = np.unique(limit)
    return flat.reshape(()) if flat.size == 1 else limit
