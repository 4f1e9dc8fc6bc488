"""Steps of a program that are written as part of another op.

A constant that is added to the sums of a layer is the bias of the layer. A clip whose only use is a
requantization is done behind it: rounding preserves the order of codes, so that
`round(clip(x, low, high)) = clip(round(x), round(low), round(high))`.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from qgraph.ir.types import Codes
from qgraph.numerics import round_shift
from qgraph.program import Program, Step
from qgraph.program.ops import OpClass, RequantizeAttrs
from qgraph.program.ops.elementwise import ClipAttrs


class Fusions:
    """The steps that are written later, with the step that uses their result."""

    def __init__(self, program: Program) -> None:
        self.program = program
        uses = Counter(name for step in program.steps for name in step.inputs)
        uses.update(program.exits)
        self.makers = {step.output: step for step in program.steps}
        self._postponed: set[str] = set()
        for step in program.steps:
            before = self.makers.get(step.inputs[0])
            if before is None or uses[before.output] != 1:
                continue
            if self._is_bias(before, step) or self._is_limit(before, step):
                self._postponed.add(before.output)

    def postponed(self, step: Step) -> bool:
        return step.output in self._postponed

    def joined(self, step: Step) -> Step | None:
        """The step before it that is written as a part of it: a layer, or a clip."""
        return self.makers[step.inputs[0]] if step.inputs[0] in self._postponed else None

    def _is_bias(self, layer: Step, step: Step) -> bool:
        if step.op != "add" or layer.family != OpClass.PRODUCT:
            return False
        other = step.inputs[1]
        shape = self.program.tensors[other].shape
        return (
            other in self.program.constants
            and layer.inputs[1] in self.program.constants
            and all(size == 1 for size in shape[:-1])
            and len(shape) <= len(self.program.tensors[step.output].shape)
        )

    def _is_limit(self, clip: Step, step: Step) -> bool:
        return (
            clip.op == "clip"
            and step.op == "requantize"
            and not step.attrs_as(RequantizeAttrs).wraps
        )


def moved_limits(clip: Step, attrs: RequantizeAttrs) -> tuple[Codes, Codes]:
    """The lowest and the highest code of a requantization whose input is clipped before."""
    limits = clip.attrs_as(ClipAttrs)
    low, high = np.asarray(attrs.low, np.int64), np.asarray(attrs.high, np.int64)

    def moved(limit: object) -> Codes:
        shifted = round_shift(np.asarray(limit, np.int64), np.asarray(attrs.shift), attrs.rounding)
        return np.clip(shifted, attrs.low, attrs.high)

    if limits.low is not None:
        low = moved(limits.low)
    if limits.high is not None:
        high = moved(limits.high)
    return np.minimum(low, high), high
