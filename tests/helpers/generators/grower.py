"""A random program that grows, and attributes drawn from their declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qgraph.ir.types import QuantSpec
from qgraph.ops.attributes import Declaration, declarations
from qgraph.program.ops import OPS
from tests.helpers.generators.choices import Choices
from tests.helpers.program_builder import ProgramBuilder

NUMBERS = 1 << 10  # an attribute with a wider range needs a recipe


@dataclass(frozen=True)
class Draft:
    """Operands and attributes of a step, and its range if that is narrower than the
    definition's.
    """

    inputs: tuple[str, ...]
    attrs: Mapping[str, object] = field(default_factory=dict)
    span: tuple[int, int] | None = None


class Grower(ProgramBuilder):
    """A program to which random steps on its tensors are added.

    int8: entries, weights and results of requantizations have at most 8 bits, a sign, and one scale
    for each tensor. Constants that are added may have more bits.
    """

    def __init__(
        self,
        choices: Choices,
        roundings: Sequence[str],
        overflows: Sequence[str],
        bits: Sequence[int],
        int8: bool = False,
    ) -> None:
        super().__init__()
        self.int8 = int8
        self.choices = choices
        self.legal = {"rounding": tuple(roundings), "overflow": tuple(overflows)}
        self.bits = bits
        self.live: list[str] = []
        for rank in choices.pick((4,), (2,), (4, 2), (4, 4), (3,)):
            self.draw_entry(rank)

    def draw_entry(self, rank: int) -> None:
        c = self.choices
        spec = self.spec((8, 2, 4, 8, 12, 16), (True, False), "input")
        channels = c.number(1, c.pick(4, 9, 36, 36))
        sizes = [c.number(1, c.pick(5, 9, 9)) for _ in range(rank - 2)]
        exponent, rounding = c.pick(0, -2, 3, 7), c.pick(*self.legal["rounding"])
        span = (spec.lo, spec.hi)
        x = self.entry((1, *sizes, channels), span, exponent=exponent, rounding=rounding)
        self.live.append(x)

    def spec(
        self, bits: Sequence[int], signs: Sequence[bool], role: str = "", wide: bool = False
    ) -> QuantSpec:
        """A number format with some of these bits and signs; `wide`: of any bits, also for int8."""
        bits = [b for b in bits if b <= 8] if self.int8 and not wide else bits
        return QuantSpec(self.choices.pick(*bits), self.choices.pick(*signs) or self.int8, role)

    def per_channel(self, probability: float) -> bool:
        """Whether the next tensor has a scale for each channel."""
        return not self.int8 and self.choices.chance(probability)

    def codes(
        self, *shape: int, bits: Sequence[int] = (8, 2, 4, 8, 8, 13, 16, 20), added: bool = False
    ) -> np.ndarray:
        """Codes in one range; sometimes all of them at one end."""
        c = self.choices
        bits = (*bits, 8, 8, 8) if self.int8 else bits
        spec = self.spec(bits, (True, True, False), "weight", wide=added)
        if c.chance(0.2):
            return np.full(shape, c.pick(spec.lo, spec.hi))
        return c.rng.integers(spec.lo, spec.hi + 1, shape)

    def derived(self, op: str, *given: str) -> dict[str, object]:
        """The values of attributes that are not given, drawn from their declarations."""
        rest = [d for d in declarations(OPS[op].attributes) if d.name not in given]
        return {declared.name: self.value(op, declared) for declared in rest}

    def value(self, op: str, declared: Declaration) -> object:
        if not derivable(declared):
            raise NotImplementedError(f"{op}: no recipe for attribute `{declared.name}`")
        if declared.choices:
            return self.choices.pick(*self.legal.get(declared.name, declared.choices))
        return self.choices.number(declared.low, declared.high)

    def drop(self, made: str) -> None:
        """Remove the last step."""
        del self.tensors[made]
        for name in self.steps.pop().inputs:
            if self.constants.pop(name, None) is not None:
                del self.tensors[name]


def derivable(declared: Declaration) -> bool:
    """Whether values of an attribute can be drawn from its declaration alone."""
    ends = (declared.low, declared.high)
    few = all(type(end) is int for end in ends) and ends[1] - ends[0] < NUMBERS
    return bool(declared.choices) or few
