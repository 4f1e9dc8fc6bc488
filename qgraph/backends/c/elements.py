"""What a pointwise step does to one element, as a C expression on int32 or int64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from qgraph.backends.c.text import INT32, number
from qgraph.ir.types import Overflow, Rounding
from qgraph.program import Program, Step

# (helper, operands) -> a call of it; a call needs the helper in the file.
Call = Callable[..., str]
# (numbers along the last axis, what they are) -> one of them, at this element.
At = Callable[[tuple[int, ...], str], str]
INFIX = {"add": "+", "sub": "-", "mul": "*"}
LIMIT = 1 << 62


def bits_for(program: Program, steps: Sequence[Step]) -> int:
    """32 or 64: what every number on the way through these steps fits in."""
    return 32 if all(_fits(program, step) for step in steps) else 64


def _fits(program: Program, step: Step) -> bool:
    tensors = [program.tensors[v] for v in (*step.inputs, step.output)]
    if any(max(-t.low, t.high) > INT32 for t in tensors):
        return False
    if step.op in ("add", "sub", "mul", "conv2d", "depthwise_conv2d", "matmul"):
        return tensors[-1].magnitude <= INT32
    if step.op == "lookup":
        return bool(max(-tensors[0].low, tensors[0].high) + abs(step.attrs["offset"]) <= INT32)
    return step.op != "requantize" or _requantize_fits(step, max(-tensors[0].low, tensors[0].high))


def _requantize_fits(step: Step, largest: int) -> bool:
    shift, low, high = (step.attrs[key] for key in ("shift", "low", "high"))
    if isinstance(shift, tuple) and min(shift) < 1:
        return False
    least = shift if isinstance(shift, int) else min(shift)
    most = shift if isinstance(shift, int) else max(shift)
    narrow = high - low < INT32 and max(-low, high) <= INT32
    return bool(most <= 31 and largest << max(-least, 0) <= INT32 and narrow)


def expression(
    step: Step, operands: Sequence[str], bits: int, largest: int, call: Call, at: At
) -> str:
    """The code that a pointwise step makes of its operands.

    largest: of the first operand, in magnitude.
    """
    if step.op in INFIX:
        a, b = (_wide(operand, bits) for operand in operands)
        if step.op == "add" and b.startswith("-"):
            return f"{a} - {b[1:]}"
        return f"{a} {INFIX[step.op]} {b}"
    if step.op in ("maximum", "minimum"):
        return call(step.op[:3], *operands)
    if step.op == "lookup":
        offset = step.attrs["offset"]
        moved = f" - {offset}" if offset > 0 else f" + {-offset}" if offset else ""
        return f"{operands[1]}[{operands[0]}{moved}]"
    if step.op == "clip":
        return _clip(step, operands[0], bits, call, at)
    assert step.op == "requantize"
    low, high = step.attrs["low"], step.attrs["high"]
    shifted = _shifted(step, operands[0], bits, largest, call, at)
    if step.attrs["overflow"] == Overflow.WRAP:
        return call("wrap", shifted, number(low), number((1 << (high - low).bit_length()) - 1))
    return call("clamp", shifted, number(low), number(high))


def _wide(operand: str, bits: int) -> str:
    """The operand in the type that is computed in; elements of arrays are narrower."""
    return f"(int{bits}_t){operand}" if operand.endswith("]") else operand


def _clip(step: Step, value: str, bits: int, call: Call, at: At) -> str:
    most = INT32 if bits == 32 else LIMIT
    for key, helper in (("low", "max"), ("high", "min")):
        bound: Any = step.attrs[key]
        if isinstance(bound, tuple):
            held = tuple(max(min(b, most), -most) for b in bound)
            value = call(helper, value, at(held, f"{step.output} {key}"))
        elif bound is not None:
            value = call(helper, value, number(max(min(bound, most), -most)))
    return value


def _shifted(step: Step, value: str, bits: int, largest: int, call: Call, at: At) -> str:
    shift, rounding = step.attrs["shift"], step.attrs["rounding"]
    helper = "floor_shift" if rounding == Rounding.FLOOR else rounding
    if isinstance(shift, tuple):
        held = tuple(max(min(s, 62), -61) for s in shift)
        if min(held) < 1:
            helper = f"{helper}_or_left"
        return call(helper, value, at(held, f"{step.output} shifts"))
    if shift > 0:
        return call(helper, value, str(min(shift, 62)))
    if shift == 0:
        return value
    left = min(-shift, 61)
    if largest << left <= (INT32 if bits == 32 else LIMIT):
        return f"{_wide(value, bits)} * {number(1 << left)}"
    return call("shift_left", value, str(left))
