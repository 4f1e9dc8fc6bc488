"""Elementwise ops: arithmetic of two operands, limits, requantization."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops.arithmetic import reach_of_abs
from qgraph.ir.types import OVERFLOWS, ROUNDINGS, Codes, Overflow, QuantSpec, Role, Rounding
from qgraph.numerics import bring_into_range, round_shift
from qgraph.ops.attributes import Attributes, attribute
from qgraph.ops.reach import (
    Ranged,
    Reach,
    reach_of_difference,
    reach_of_larger,
    reach_of_product,
    reach_of_smaller,
    reach_of_sum,
)
from qgraph.ops.shapes import Sizes
from qgraph.program.ops.base import AnyProgramOp, Index, Manual, OpClass, Operand, ProgramOp
from qgraph.program.ops.layout import PerChannel

MAX_CODE = 1 << 53  # of codes
MAX_SHIFT = 1 << 31


@dataclass(frozen=True)
class BinaryAttrs(Attributes):
    """Arithmetic of two operands has no attributes."""


@dataclass(frozen=True)
class ClipAttrs(Attributes):
    """Limits of codes."""

    low: PerChannel | None = attribute(
        "lowest code, one for all or one for each index of the last axis; None for no limit",
        low=-MAX_CODE, high=MAX_CODE,
    )  # fmt: skip
    high: PerChannel | None = attribute(
        "highest code, one for all or one for each index of the last axis; None for no limit",
        low=-MAX_CODE, high=MAX_CODE,
    )  # fmt: skip


@dataclass(frozen=True)
class RequantizeAttrs(Attributes):
    """Codes on another scale. Raises GraphError for a range that is not two's complement."""

    shift: PerChannel = attribute(
        "bits to shift right, or left if negative; one for all or one for each index of the last "
        "axis",
        low=-MAX_SHIFT, high=MAX_SHIFT,
    )  # fmt: skip
    rounding: Rounding = attribute("the rounding of a right shift", choices=ROUNDINGS)
    overflow: Overflow = attribute("the treatment of codes outside the range", choices=OVERFLOWS)
    low: int = attribute("lowest code of the range", low=-MAX_CODE, high=MAX_CODE)
    high: int = attribute("highest code of the range", low=-MAX_CODE, high=MAX_CODE)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rounding", Rounding(self.rounding))
        object.__setattr__(self, "overflow", Overflow(self.overflow))
        codes = self.high - self.low + 1
        if codes < 2 or codes & (codes - 1) or self.low not in (0, -codes // 2):
            raise GraphError(
                f"range {self.low}..{self.high} is not two's complement",
                hint="legal: 0 to 2^bits - 1, or -2^(bits - 1) to 2^(bits - 1) - 1",
            )

    @property
    def bits(self) -> int:
        return (self.high - self.low).bit_length()

    @property
    def wraps(self) -> bool:
        return self.overflow == Overflow.WRAP

    @property
    def spec(self) -> QuantSpec:
        """The range as a quantizer without exponent."""
        return QuantSpec(
            self.bits, self.low < 0, Role.ACTIVATION, rounding=self.rounding, overflow=self.overflow
        )

    def shifted(self, codes: Codes) -> Codes:
        """Codes after the shift, before they are brought into the range."""
        return round_shift(codes, np.asarray(self.shift), self.rounding)


@dataclass(frozen=True)
class LookupAttrs(Attributes):
    """A table of results."""

    offset: int = attribute("code of the first entry", low=-MAX_CODE, high=MAX_CODE)


# -- shapes -------------------------------------------------------------------------------------


def broadcast(attrs: Attributes, shapes: Sequence[Sizes]) -> Sizes:
    """The broadcast shape of operands; axes of size 1 repeat, missing axes are in front."""
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    try:
        return tuple(map(int, np.broadcast_shapes(*shapes)))
    except ValueError:
        raise GraphError(f"operands of shapes {list(shapes)} do not fit together") from None


def _same(attrs: Attributes, shapes: Sequence[Sizes]) -> Sizes:
    return shapes[0]


def _by_channel(*names: str) -> Callable[[Attributes, Sequence[Sizes]], Sizes]:
    """The shape of x; these attributes must have one number, or one for each channel of x."""

    def shape(attrs: Attributes, shapes: Sequence[Sizes]) -> Sizes:
        for name in names:
            value = getattr(attrs, name)
            if isinstance(value, tuple) and (not shapes[0] or len(value) != shapes[0][-1]):
                raise GraphError(
                    f"attribute `{name}` has {len(value)} numbers for shape {shapes[0]}"
                )
        return shapes[0]

    return shape


def _lookup_shape(attrs: LookupAttrs, shapes: Sequence[Sizes]) -> Sizes:
    if len(shapes[1]) != 1:
        raise GraphError(f"needs a table of rank 1, found {shapes[1]}")
    return shapes[0]


# -- arithmetic and ranges ----------------------------------------------------------------------


def _clip(attrs: ClipAttrs, inputs: Sequence[Codes]) -> Codes:
    x = inputs[0]
    x = x if attrs.low is None else np.maximum(x, attrs.low)
    return x if attrs.high is None else np.minimum(x, attrs.high)


def _clip_reach(attrs: ClipAttrs, inputs: Sequence[Operand]) -> Reach:
    x = inputs[0]
    ends = [_clip(attrs, [np.asarray(end, np.int64)]) for end in (x.low, x.high)]
    return Reach(int(np.min(ends[0])), int(np.max(ends[1])), x.magnitude)


def _requantize(attrs: RequantizeAttrs, inputs: Sequence[Codes]) -> Codes:
    return bring_into_range(attrs.shifted(inputs[0]), attrs.spec)


def _requantize_reach(attrs: RequantizeAttrs, inputs: Sequence[Operand]) -> Reach:
    return Reach(attrs.low, attrs.high, max(-attrs.low, attrs.high))


def _lookup(attrs: LookupAttrs, inputs: Sequence[Codes]) -> Codes:
    return inputs[1][inputs[0] - attrs.offset]


def _lookup_reach(attrs: LookupAttrs, inputs: Sequence[Operand]) -> Reach:
    table = inputs[1]
    return Reach(table.low, table.high, max(-table.low, table.high))


# -- structure ----------------------------------------------------------------------------------


def _broadcast_is_separate(attrs: BinaryAttrs, inputs: Sequence[Operand], made: Sizes) -> bool:
    rank = len(made)
    return all(
        (len(x.shape) < rank or x.shape[0] == 1) if x.constant else len(x.shape) == rank
        for x in inputs
    )


def _not_along_the_batch(attrs: Attributes, inputs: Sequence[Operand], made: Sizes) -> bool:
    """Whether per-channel numbers apply to channels, not to the samples of a tensor of rank 1."""
    return len(made) > 1 or not any(isinstance(value, tuple) for _, value in attrs.items())


def always(attrs: Attributes, inputs: Sequence[Operand], made: Sizes) -> bool:
    return True


def _aligned(attrs: Attributes, inputs: Sequence[Codes], index: Index) -> list[tuple[int, Index]]:
    return [(i, _place(x.shape, index)) for i, x in enumerate(inputs)]


def _place(shape: Sizes, index: Index) -> Index:
    own = index[len(index) - len(shape) :]
    return tuple(0 if size == 1 else i for size, i in zip(shape, own, strict=True))


def _lookup_sources(
    attrs: LookupAttrs, inputs: Sequence[Codes], index: Index
) -> list[tuple[int, Index]]:
    return [(0, index), (1, (int(inputs[0][index]) - attrs.offset,))]


BROADCAST = (
    "that of both operands after broadcasting: shapes are aligned at their last axis, and an axis "
    "that has size 1 or is missing at the front is repeated"
)
ALWAYS = "always"
MORE_THAN_CHANNELS = "if the result has more than one axis"
OPERANDS_BY_SAMPLE = (
    "if each operand has the rank of the result; a constant may have fewer axes, or size 1 along "
    "the first"
)
EXACT = "none: results are exact. A program is refused if `magnitude` exceeds 2^53"


def _binary(
    name: str,
    code: int,
    formula: str,
    summary: str,
    reach_words: str,
    compute: Callable[[Codes, Codes], Codes],
    reach: Callable[[Ranged, Ranged], Reach],
) -> ProgramOp[BinaryAttrs]:
    return ProgramOp(
        name,
        code,
        OpClass.BINARY,
        ("a", "b"),
        BinaryAttrs,
        Manual(summary, BROADCAST, formula, reach_words, EXACT, OPERANDS_BY_SAMPLE),
        broadcast,
        lambda attrs, inputs: compute(inputs[0], inputs[1]),
        lambda attrs, inputs: reach(inputs[0], inputs[1]),
        _broadcast_is_separate,
        _aligned,
    )


OPS: tuple[AnyProgramOp, ...] = (
    _binary("add", 3, "y = a + b", "The sum of two tensors; also used for a bias.",
            "a.low + b.low to a.high + b.high; magnitudes are added", np.add, reach_of_sum),
    _binary("sub", 4, "y = a - b", "The difference of two tensors.",
            "a.low - b.high to a.high - b.low; magnitudes are added",
            np.subtract, reach_of_difference),
    _binary("mul", 5, "y = a * b", "The product of two tensors, element by element.",
            "the smallest to the largest of the four products of limits; magnitudes are multiplied",
            np.multiply, reach_of_product),
    _binary("maximum", 6, "y = a if a >= b else b", "The larger of two elements.",
            "the larger of the lows to the larger of the highs; the larger magnitude",
            np.maximum, reach_of_larger),
    _binary("minimum", 7, "y = a if a <= b else b", "The smaller of two elements.",
            "the smaller of the lows to the smaller of the highs; the larger magnitude",
            np.minimum, reach_of_smaller),
    ProgramOp(
        "clip",
        8,
        OpClass.UNARY,
        ("x",),
        ClipAttrs,
        Manual(
            "Limits codes to a range; a ReLU has low 0.",
            "that of x",
            "t = x if low is None else max(x, low)\ny = t if high is None else min(t, high)",
            "that of x, clipped to the limits; the magnitude is that of x",
            "none; the lower limit is applied first",
            f"{MORE_THAN_CHANNELS}, or no limit is a list",
        ),
        _by_channel("low", "high"),
        _clip,
        _clip_reach,
        _not_along_the_batch,
        _aligned,
    ),
    ProgramOp(
        "requantize",
        9,
        OpClass.UNARY,
        ("x",),
        RequantizeAttrs,
        Manual(
            "Converts codes to another scale and range, with rounding. The range is two's "
            "complement: 0 to 2^bits - 1, or -2^(bits-1) to 2^(bits-1) - 1; any other is refused.",
            "that of x",
            "r = min(max(shift, 0), 62), l = min(max(-shift, 0), 61)\n"
            "whole = floor(x / 2^r), rest = x - whole * 2^r, half = 2^(r-1)\n"
            "up = 0 if r = 0, else\n"
            "    half_even: 1 if rest > half, or rest = half and whole is odd\n"
            "    half_up:   1 if rest >= half\n"
            "    half_away: 1 if rest > half, or rest = half and x >= 0\n"
            "    floor:     0\n"
            "    double:    1 if e > half, or e = half and x >= 0, with e = rest + rest mod 2\n"
            "t = min(max(whole + up, -2^(62-l)), 2^(62-l)) * 2^l\n"
            "saturate: y = min(max(t, low), high)\n"
            "wrap:     y = (t - low) mod 2^bits + low, the remainder never negative",
            "low to high; the magnitude is max(-low, high)",
            "codes outside the range saturate or wrap, by `overflow`; before that, a left "
            "shift stays within +-2^62",
            f"{MORE_THAN_CHANNELS}, or `shift` is not a list",
        ),
        _by_channel("shift"),
        _requantize,
        _requantize_reach,
        _not_along_the_batch,
        _aligned,
        file=("rounding", "overflow", "low", "high", "shift"),
    ),
    ProgramOp(
        "lookup",
        10,
        OpClass.UNARY,
        ("x", "table"),
        LookupAttrs,
        Manual(
            "Replaces each code by an entry of a constant table, for any function of one tensor.",
            "that of x; the table has rank 1 and an entry for every possible code of x",
            "y = table[x - offset]",
            "low to high of the table; the magnitude is max(-low, high)",
            "none: every code has an entry",
            ALWAYS,
        ),
        _lookup_shape,
        _lookup,
        _lookup_reach,
        always,
        _lookup_sources,
    ),
    ProgramOp(
        "abs",
        20,
        OpClass.UNARY,
        ("x",),
        Attributes,
        Manual(
            "The absolute value of an element.",
            "that of x",
            "y = x if x >= 0 else -x",
            "max(x.low, -x.high, 0) to max(-x.low, x.high); the magnitude is that of x",
            EXACT,
            ALWAYS,
        ),
        _same,
        lambda attrs, inputs: np.abs(inputs[0]),
        lambda attrs, inputs: reach_of_abs(inputs[0]),
        always,
        _aligned,
    ),
)  # fmt: skip
