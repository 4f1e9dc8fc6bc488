"""Write a pointwise step on one element as a C expression on int32 or int64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qgraph.backends.c.arithmetic import SATURATED
from qgraph.backends.c.c_text import INT32, number
from qgraph.errors import GraphError
from qgraph.ir.types import ROUNDINGS, Rounding
from qgraph.program import Program, Step, Tensor
from qgraph.program.ops import ClipAttrs, LookupAttrs, OpClass, RequantizeAttrs

# (helper, operands) -> a call of the helper, which is then written to the file.
Call = Callable[..., str]
# (numbers along the last axis, description) -> the number for the current element.
At = Callable[[tuple[int, ...], str], str]
LIMIT = 1 << 62


@dataclass(frozen=True)
class CStep:
    """A step where it is written: its operands as C, and the bits of the computation.

    largest: magnitude of the first operand.
    """

    step: Step
    operands: Sequence[str]
    bits: int
    largest: int
    call: Call
    at: At


@dataclass(frozen=True)
class Expression:
    """The C expression of a pointwise op.

    fits: whether 32 bits are enough for all intermediate numbers, if they are for operands and
    result.
    """

    write: Callable[[CStep], str]
    fits: Callable[[Program, Step], bool]


def bits_for(program: Program, steps: Sequence[Step]) -> int:
    """32 or 64: the bits that are enough for all numbers in the computation of these steps."""
    return 32 if all(_fits(program, step) for step in steps) else 64


def expression(site: CStep) -> str:
    """The expression of a pointwise step on its operands."""
    return _entry(site.step).write(site)


def _entry(step: Step) -> Expression:
    if step.op not in EXPRESSIONS:
        raise GraphError(f"{step.op}: no expression in backends/c/elements", node=step.output)
    return EXPRESSIONS[step.op]


def _fits(program: Program, step: Step) -> bool:
    if any(_largest(program.tensors[v]) > INT32 for v in (*step.inputs, step.output)):
        return False
    if step.family in (OpClass.PRODUCT, OpClass.MATRIX):
        return _sums_fit(program, step)
    return not step.family.pointwise or _entry(step).fits(program, step)


def _largest(tensor: Tensor) -> int:
    return max(-tensor.low, tensor.high)


def _sums_fit(program: Program, step: Step) -> bool:
    return program.tensors[step.output].magnitude <= INT32


def _always(program: Program, step: Step) -> bool:
    return True


def _infix(sign: str) -> Callable[[CStep], str]:
    def write(site: CStep) -> str:
        a, b = (_wide(operand, site.bits) for operand in site.operands)
        if sign == "+" and b.startswith("-"):
            return f"{a} - {b[1:]}"
        return f"{a} {sign} {b}"

    return write


def _helper(name: str) -> Callable[[CStep], str]:
    return lambda site: site.call(name, *site.operands)


def _wide(operand: str, bits: int) -> str:
    """The operand in the type of the computation; elements of arrays are narrower."""
    return f"(int{bits}_t){operand}" if operand.endswith("]") else operand


def _abs(site: CStep) -> str:
    value = _wide(site.operands[0], site.bits)
    return site.call("max", value, f"-{value}")


def _lookup(site: CStep) -> str:
    offset = site.step.attrs_as(LookupAttrs).offset
    moved = f" - {offset}" if offset > 0 else f" + {-offset}" if offset else ""
    return f"{site.operands[1]}[{site.operands[0]}{moved}]"


def _lookup_fits(program: Program, step: Step) -> bool:
    offset = step.attrs_as(LookupAttrs).offset
    return _largest(program.tensors[step.inputs[0]]) + abs(offset) <= INT32


def _clip(site: CStep) -> str:
    attrs, value = site.step.attrs_as(ClipAttrs), site.operands[0]
    most = INT32 if site.bits == 32 else LIMIT
    for key, bound, helper in (("low", attrs.low, "max"), ("high", attrs.high, "min")):
        if isinstance(bound, tuple):
            held = tuple(max(min(b, most), -most) for b in bound)
            value = site.call(helper, value, site.at(held, f"{site.step.output} {key}"))
        elif bound is not None:
            value = site.call(helper, value, number(max(min(bound, most), -most)))
    return value


def _requantize(site: CStep) -> str:
    attrs = site.step.attrs_as(RequantizeAttrs)
    shifted = _shifted(site, attrs)
    if attrs.wraps:
        return site.call("wrap", shifted, number(attrs.low), number((1 << attrs.bits) - 1))
    ends = attrs.low, attrs.high
    if site.bits == 32 and ends in SATURATED:
        return site.call(f"saturate_{SATURATED[ends][0]}", shifted)
    return site.call("clamp", shifted, *map(number, ends))


def _shifted(site: CStep, attrs: RequantizeAttrs) -> str:
    value, shift, call = site.operands[0], attrs.shift, site.call
    helper: str = "floor_shift" if attrs.rounding == Rounding.FLOOR else attrs.rounding
    if isinstance(shift, tuple):
        held = tuple(max(min(s, 62), -61) for s in shift)
        if min(held) < 1:
            helper = f"{helper}_or_left"
        elif _is_short(site, helper, held):
            helper = f"short_{helper}"
        return call(helper, value, site.at(held, f"{site.step.output} shifts"))
    if shift > 0:
        if helper == Rounding.DOUBLE and shift == 1:
            helper = Rounding.HALF_UP
        short = "short_" if _is_short(site, helper, (shift,)) else ""
        return call(f"{short}{helper}", value, str(min(shift, 62)))
    if shift == 0:
        return value
    left = min(-shift, 61)
    if site.largest << left <= (INT32 if site.bits == 32 else LIMIT):
        return f"{_wide(value, site.bits)} * {number(1 << left)}"
    return call("shift_left", value, str(left))


def _is_short(site: CStep, helper: str, shifts: tuple[int, ...]) -> bool:
    """Whether the rounding of an int32 needs no care for overflow."""
    least = 2 if helper == Rounding.DOUBLE else 1
    reached = site.largest + (1 << max(shifts) - 1)
    return (
        site.bits == 32 and helper in ROUNDINGS and helper != Rounding.FLOOR
        and min(shifts) >= least and reached <= INT32
    )  # fmt: skip


def _requantize_fits(program: Program, step: Step) -> bool:
    attrs = step.attrs_as(RequantizeAttrs)
    shifts = attrs.shift if isinstance(attrs.shift, tuple) else (attrs.shift,)
    if isinstance(attrs.shift, tuple) and min(shifts) < 1:
        return False
    narrow = attrs.high - attrs.low < INT32 and max(-attrs.low, attrs.high) <= INT32
    reached = _largest(program.tensors[step.inputs[0]]) << max(-min(shifts), 0)
    return max(shifts) <= 31 and reached <= INT32 and narrow


EXPRESSIONS: Mapping[str, Expression] = {
    "add": Expression(_infix("+"), _sums_fit),
    "sub": Expression(_infix("-"), _sums_fit),
    "mul": Expression(_infix("*"), _sums_fit),
    "maximum": Expression(_helper("max"), _always),
    "minimum": Expression(_helper("min"), _always),
    "abs": Expression(_abs, _always),
    "clip": Expression(_clip, _always),
    "requantize": Expression(_requantize, _requantize_fits),
    "lookup": Expression(_lookup, _lookup_fits),
}
