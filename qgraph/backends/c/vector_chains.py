"""The steps behind sums, four channels at a time, for processors with Arm's vectors (MVE)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qgraph.backends.c.c_text import INT32, index, number
from qgraph.ir.types import Rounding
from qgraph.program import Step
from qgraph.program.layers import elements
from qgraph.program.ops import ClipAttrs, RequantizeAttrs

if TYPE_CHECKING:
    from qgraph.backends.c.functions import FunctionWriter

LANES = 4
GUARD = "VECTOR_CHAINS"  # defined with vectors, but not to trace every code
LOADS = {
    "int8": "vldrbq_s32({})", "uint8": "vreinterpretq_s32_u32(vldrbq_u32({}))",
    "int16": "vldrhq_s32({})", "uint16": "vreinterpretq_s32_u32(vldrhq_u32({}))",
    "int32": "vldrwq_s32({})",
}  # fmt: skip
STORES = {
    "int8": "vstrbq_s32({}, {});", "uint8": "vstrbq_u32({}, vreinterpretq_u32_s32({}));",
    "int16": "vstrhq_s32({}, {});", "uint16": "vstrhq_u32({}, vreinterpretq_u32_s32({}));",
    "int32": "vstrwq_s32({}, {});",
}  # fmt: skip
INFIX = {"add": "vaddq_s32", "sub": "vsubq_s32", "mul": "vmulq_s32"}
EITHER = {"maximum": "vmaxq_s32", "minimum": "vminq_s32"}
ROUNDINGS_X4 = """\
#ifdef VECTOR_CHAINS
/* Four codes / 2^n, rounded; `back` is -n, and no code is -2^31. */
static inline int32x4_t floor_shift_x4(int32x4_t v, int32x4_t back)
{
    return vshlq_s32(v, back);
}

static inline int32x4_t half_up_x4(int32x4_t v, int32x4_t back)
{
    return vrshlq_s32(v, back);
}

static inline int32x4_t half_away_x4(int32x4_t v, int32x4_t back)
{
    return vrshlq_s32(vaddq_s32(v, vshrq_n_s32(v, 31)), back);
}

static inline int32x4_t half_even_x4(int32x4_t v, int32x4_t back)
{
    const int32x4_t odd = vandq_s32(vshlq_s32(v, back), vdupq_n_s32(1));

    return vrshlq_s32(vaddq_s32(vsubq_s32(v, vdupq_n_s32(1)), odd), back);
}

static inline int32x4_t double_x4(int32x4_t v, int32x4_t back)
{
    return half_away_x4(vrshrq_n_s32(v, 1), vaddq_s32(back, vdupq_n_s32(1)));
}
#endif
"""


class NoVectorsError(Exception):
    """A step that has no vector form."""


@dataclass(frozen=True)
class VectorChain:
    """The steps of a layer on four channels `c`, whose index in the output is `i`.

    places: strides of operands; the last is that of channels. counters: of the loops around.
    """

    writer: FunctionWriter
    sums: str
    counters: Sequence[tuple[str, int]]
    places: Mapping[str, Sequence[int]]

    def lines(self) -> list[str] | None:
        """The statements; None if a step has no vector form."""
        layer, idents = self.writer.layer, self.writer.source.idents
        if self.writer.bits != 32 or self.writer.shape[-1] < LANES:
            return None
        before = set(self.writer.source.data)
        known = {layer.head.output: f"vldrwq_s32({self.sums} + c)"}
        try:
            made = [
                (step.output, known.get(step.output) or self._expression(step))
                for step in layer.steps
            ]
            stores = [self._store(tensor, target) for tensor, target in self._targets()]
        except NoVectorsError:
            for name in self.writer.source.data.keys() - before:
                del self.writer.source.data[name]
            return None
        return [*(f"const int32x4_t {idents[name]} = {text};" for name, text in made), *stores]

    def _targets(self) -> Sequence[tuple[str, str]]:
        return [*self.writer.targets.items()]

    def _store(self, tensor: str, target: str) -> str:
        kind = self.writer.tensors[tensor].storage
        if kind not in STORES:
            raise NoVectorsError
        return STORES[kind].format(f"{target} + i", self.writer.source.idents[tensor])

    def _expression(self, step: Step) -> str:
        if step.op in INFIX or step.op in EITHER:
            name = INFIX.get(step.op) or EITHER[step.op]
            return f"{name}({', '.join(self._operand(v) for v in step.inputs)})"
        if step.op in ("clip", "requantize"):
            return _BOUNDED[step.op](self, step, self._operand(step.inputs[0]))
        raise NoVectorsError

    def _operand(self, value: str) -> str:
        writer = self.writer
        if value in writer.layer.made:
            return writer.source.idents[value]
        tensor = writer.tensors[value]
        if value in writer.program.constants and elements(tensor) == 1:
            return f"vdupq_n_s32({int(writer.program.constants[value].reshape(()))})"
        walk = self.places[value]
        if tensor.storage not in LOADS or walk[-1] not in (0, 1):
            raise NoVectorsError
        place = index(walk, self.counters)
        if walk[-1] == 0:
            return f"vdupq_n_s32({writer.array(value)}[{place}])"
        return LOADS[tensor.storage].format(f"{writer.array(value)} + {place}")

    def _numbers(self, values: int | tuple[int, ...], text: str) -> str:
        """A vector of a number for all channels, or of numbers along them."""
        if isinstance(values, int):
            return f"vdupq_n_s32({number(values)})"
        name = self.writer.source.array(values, text, GUARD)
        return LOADS[self.writer.source.data[name].kind].format(f"{name} + c")

    def clip(self, step: Step, value: str) -> str:
        attrs = step.attrs_as(ClipAttrs)
        for key, bound, op in (("low", attrs.low, "vmaxq_s32"), ("high", attrs.high, "vminq_s32")):
            if bound is not None:
                held = tuple(map(_within, bound)) if isinstance(bound, tuple) else _within(bound)
                value = f"{op}({value}, {self._numbers(held, f'{step.output} {key}')})"
        return value

    def requantize(self, step: Step, value: str) -> str:
        attrs = step.attrs_as(RequantizeAttrs)
        if attrs.wraps:
            raise NoVectorsError
        shifted = self._shifted(step, attrs, value)
        low, high = (self._numbers(n, "") for n in (attrs.low, attrs.high))
        return f"vminq_s32(vmaxq_s32({shifted}, {low}), {high})"

    def _shifted(self, step: Step, attrs: RequantizeAttrs, value: str) -> str:
        shift = attrs.shift
        least = min(shift) if isinstance(shift, tuple) else shift
        if isinstance(shift, int) and shift <= 0:
            return f"vmulq_n_s32({value}, {1 << -shift})" if shift else value
        rounding: str = attrs.rounding
        if attrs.rounding == Rounding.DOUBLE and least < 2:
            if isinstance(shift, tuple):
                raise NoVectorsError
            rounding = Rounding.HALF_UP
        helper = "floor_shift" if rounding == Rounding.FLOOR else rounding
        back = tuple(-s for s in shift) if isinstance(shift, tuple) else -shift
        return f"{helper}_x4({value}, {self._numbers(back, f'{step.output} back')})"


def _within(bound: int) -> int:
    return max(min(bound, INT32), -INT32)


_BOUNDED: Mapping[str, Callable[[VectorChain, Step, str], str]] = {
    "clip": VectorChain.clip,
    "requantize": VectorChain.requantize,
}
