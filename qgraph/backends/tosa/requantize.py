"""Requantization by RESCALE.

With the multiplier 2^30 and a shift of k + 30, SINGLE_ROUND computes `(x + 2^(k-1)) >> k`, which is
`half_up`, and DOUBLE_ROUND is `double`. The other roundings are `half_up` of a number beside x, for
k > 0:

    floor       x - 2^(k-1)
    half_away   x - 1 if x is below 0, else x
    half_even   x - 1 if bit k of x is 0, else x
"""

from __future__ import annotations

import numpy as np

from qgraph.backends.tosa.emission import MOST, TosaEmission
from qgraph.backends.tosa.fusion import moved_limits
from qgraph.backends.tosa.graph_builder import UNIT, WIDE, StoredAs
from qgraph.backends.tosa.tosa_file import NUMPY_TYPES, TosaOp, TosaRounding, TosaType
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Array, Codes, Rounding
from qgraph.program import Step, Tensor
from qgraph.program.ops import RequantizeAttrs

MOST_LEFT, MOST_RIGHT = UNIT - 2, 32  # shifts of RESCALE
NAN_MODE = 1  # required of ops that compare numbers; integers have no NaN


def requantize(emission: TosaEmission, step: Step) -> None:
    attrs = step.attrs_as(RequantizeAttrs)
    clip = emission.fusions.joined(step)
    source = step.inputs[0] if clip is None else clip.inputs[0]
    low, high = np.asarray(attrs.low), np.asarray(attrs.high)
    if clip is not None:
        low, high = moved_limits(clip, attrs)
    shift = _shifts(emission.tensors[source], attrs, step.output)
    stored = WIDE if attrs.wraps else emission.natural(step.output)
    value, zero = _prepared(emission, source, step, shift)
    rounding = TosaRounding.SINGLE_ROUND
    if attrs.rounding == Rounding.DOUBLE and (shift > 1).any():
        rounding = TosaRounding.DOUBLE_ROUND
    value = emission.model.rescaled(value, step.output, zero, stored, shift, rounding)
    if attrs.wraps:
        value = _wrapped(emission, value, attrs, step.output)
    else:
        value = limited(emission, value, stored, low, high, step.output)
    emission.put(step.output, value, stored)


def _shifts(tensor: Tensor, attrs: RequantizeAttrs, node: str) -> Codes:
    """Shifts to the right; those past the bits of the codes are shortened, with equal results."""
    bits = max(-tensor.low, tensor.high).bit_length()
    shift = np.asarray(attrs.shift, np.int64)
    shift = np.minimum(shift, bits if attrs.rounding == Rounding.FLOOR else bits + 2)
    if (shift > MOST_RIGHT).any() and attrs.rounding != Rounding.DOUBLE:
        shift = np.minimum(shift, MOST_RIGHT)
    if (shift < -MOST_LEFT).any() or (shift > MOST_RIGHT).any():
        worst = int(shift.min()) if (shift < -MOST_LEFT).any() else int(shift.max())
        raise UnsupportedError(
            f"shifts by {worst} bits to the right; RESCALE shifts by {-MOST_LEFT} to {MOST_RIGHT}",
            node=node,
            hint="use another format, such as `c`",
        )
    return shift


def _prepared(emission: TosaEmission, source: str, step: Step, shift: Codes) -> tuple[str, int]:
    """The value that RESCALE takes, and its zero point."""
    attrs, stem = step.attrs_as(RequantizeAttrs), step.output
    tensor, made = emission.tensors[source], emission.tensors[stem]
    low, high = tensor.low, tensor.high
    value, held = "", WIDE
    if _too_large(low, high, shift).any() and not attrs.wraps:
        # Codes far outside the range are limited first, which does not change the result.
        room = np.int64(1) << np.clip(shift, 0, MOST_RIGHT)
        lows = np.maximum(_before(max(attrs.low, made.low), shift) - room, low)
        highs = np.minimum(_before(min(attrs.high, made.high), shift) + room, high)
        value = emission.get(source, WIDE)
        value = _compared(emission, TosaOp.MAXIMUM, value, lows, stem)
        value = _compared(emission, TosaOp.MINIMUM, value, highs, stem)
    else:
        lows, highs = np.asarray(low), np.asarray(high)
    floor = attrs.rounding == Rounding.FLOOR
    added = _half(shift) if floor else np.int64(1)
    if _too_large(lows - added, highs, shift).any():
        raise UnsupportedError(
            f"its codes {low:,}..{high:,} do not fit in the 32 bits of RESCALE",
            node=stem,
            hint="use another format, such as `c`",
        )
    if not value and ((shift <= 0).all() or attrs.rounding in (Rounding.HALF_UP, Rounding.DOUBLE)):
        held = emission.held_as(source)
        return emission.get(source, held), held.zero
    value = value or emission.get(source, WIDE)
    return _rounded(emission, value, tensor, attrs.rounding, shift, stem), 0


def _too_large(low: Codes | int, high: Codes | int, shift: Codes) -> Array:
    """Whether RESCALE refuses codes: for a shift by k, it takes those below 2^(k + 29)."""
    limit = np.minimum(np.int64(1) << np.clip(shift + UNIT - 1, 0, 31), MOST)
    return np.asarray((low < -limit) | (high >= limit))


def _before(code: int, shift: Codes) -> Codes:
    """A code before the shift; rounded up after a left shift."""
    return np.where(shift > 0, code << np.maximum(shift, 0), -((-code) >> np.maximum(-shift, 0)))


def _half(shift: Codes) -> Codes:
    """Half of the smallest code that the shift keeps; 0 for left shifts."""
    return np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)


def _rounded(
    emission: TosaEmission, value: str, tensor: Tensor, rounding: Rounding, shift: Codes, stem: str
) -> str:
    """The number whose `half_up` is the rounding of an int32 value."""
    model, right = emission.model, shift > 0
    if not right.any() or rounding in (Rounding.HALF_UP, Rounding.DOUBLE):
        return value
    match rounding:
        case Rounding.FLOOR:
            return model.with_number(TosaOp.SUB, value, _half(shift), stem)
        case Rounding.HALF_AWAY:
            if tensor.low >= 0:
                return value
            below = _shifted(emission, value, np.int64(31), stem)  # -1 below 0
            where = model.with_number(TosaOp.BITWISE_AND, below, np.where(right, -1, 0), stem)
            return model.binary(TosaOp.ADD, value, where, stem)
        case _:
            bit = _shifted(emission, value, np.clip(shift, 0, 31), stem)
            bit = model.with_number(TosaOp.BITWISE_AND, bit, np.where(right, 1, 0), stem)
            lower = model.with_number(TosaOp.SUB, bit, np.where(right, 1, 0), stem)
            return model.binary(TosaOp.ADD, value, lower, stem)


def _shifted(emission: TosaEmission, value: str, shift: Codes | np.int64, stem: str) -> str:
    return emission.model.with_number(
        TosaOp.ARITHMETIC_RIGHT_SHIFT, value, shift, f"{stem}/shifted", round=False
    )


def _wrapped(emission: TosaEmission, value: str, attrs: RequantizeAttrs, stem: str) -> str:
    model = emission.model
    moved = model.with_number(TosaOp.SUB, value, attrs.low, stem) if attrs.low else value
    kept = model.with_number(TosaOp.BITWISE_AND, moved, attrs.high - attrs.low, stem)
    return model.with_number(TosaOp.ADD, kept, attrs.low, stem) if attrs.low else kept


def limited(
    emission: TosaEmission, value: str, stored: StoredAs, low: Codes, high: Codes, stem: str
) -> str:
    """Codes within limits, one or one for each index of the last axis."""
    low, high = (np.clip(limit, stored.low, stored.high) for limit in (low, high))
    if (low <= stored.low).all() and (high >= stored.high).all():
        return value
    model = emission.model
    if stored != WIDE and low.ndim == high.ndim == 0:
        ends = {
            "min_val": stored.numbers(low).tobytes(),
            "max_val": stored.numbers(high).tobytes(),
        }
        return model.add(
            TosaOp.CLAMP, [value], stem, stored.dtype, model.shape(value), **ends,
            nan_mode=NAN_MODE,
        )  # fmt: skip
    if stored == WIDE:
        value = _compared(emission, TosaOp.MAXIMUM, value, low, stem)
        return _compared(emission, TosaOp.MINIMUM, value, high, stem)
    wide = model.rescaled(value, f"{stem}/stored", stored.zero, WIDE)
    held = limited(emission, wide, WIDE, low, high, stem)
    return model.rescaled(held, stem, 0, stored)


def _compared(emission: TosaEmission, op: TosaOp, value: str, limit: Codes, stem: str) -> str:
    """The larger or the smaller of a value and constants; the ends of int32 have no effect."""
    ends = np.iinfo(NUMPY_TYPES[TosaType.INT32])
    if op is TosaOp.MAXIMUM and (limit == ends.min).all():
        return value
    if op is TosaOp.MINIMUM and (limit == ends.max).all():
        return value
    return emission.model.with_number(op, value, limit, stem, nan_mode=NAN_MODE)
