"""Tensors of a program in a `.tflite` file, and what executors require of them.

In int8, codes that are never negative have zero point -128, others zero point 0. In int16, all have
zero point 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.backends.pending_layers import LayerOutput
from qgraph.backends.tflite.arithmetic import ARITHMETICS, TfliteArithmetic, rounds_alike
from qgraph.backends.tflite.model_builder import QuantizedScale, TfliteModelBuilder
from qgraph.backends.tflite.sum_limits import SumLimits
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Array, Codes, Rounding
from qgraph.program import Program, Step

LARGEST_EXPONENT = 126
RELU6 = 6
PROFILES = [f"`{one.name}`" for one in ARITHMETICS]
ANOTHER_PROFILE = f"use profile {', '.join(PROFILES[:-1])} or {PROFILES[-1]}, or another format"


class TensorWriter(ABC):
    """Writes tensors and operators; `held` has the number of each tensor of the program."""

    def __init__(
        self, program: Program, arithmetic: TfliteArithmetic, builder: TfliteModelBuilder
    ) -> None:
        self.program, self.arithmetic, self.model = program, arithmetic, builder
        self.tensors, self.stored = program.tensors, arithmetic.stored
        self.indices = indices_of_rows(program)
        self.held: dict[str, int] = {}
        self.lowest_weights: list[str] = []  # layers with weights of -128

    # -- tensors -----------------------------------------------------------------------------

    @abstractmethod
    def get_like(self, name: str, like: str) -> int:
        """A tensor, stored with the zero point of another; codes that do not fit saturate."""

    @abstractmethod
    def constant_like(self, name: str, like: str) -> int:
        """A constant stored with the zero point of another tensor."""

    def codes(self, name: str) -> Codes | None:
        """Codes of a constant; None for other tensors."""
        held = self.program.constants.get(name)
        return None if held is None else held.astype(np.int64)

    def constant_codes(self, name: str) -> Codes:
        return self.program.constants[name].astype(np.int64)

    def scale_of(self, name: str) -> QuantizedScale:
        """How a tensor is stored: indices of rows in int32, others as activations are.

        Raises UnsupportedError if the type of activations cannot hold it.
        """
        tensor, exponent = self.tensors[name], self.exponent(name)
        if name in self.indices:
            return QuantizedScale(exponent)
        stored = self.stored
        if not stored.fit(tensor.low, tensor.high):
            unsigned = stored.low <= tensor.low and tensor.high < 1 << stored.bits
            kind = f"{stored.bits} bits" if stored.zero_points else f"signed {stored.bits} bits"
            raise UnsupportedError(
                f"its codes are {tensor.low:,}..{tensor.high:,}, which do not fit in {kind}",
                node=name,
                hint="set `signed_activations: true` in the profile"
                if unsigned
                else ANOTHER_PROFILE,
            )
        return QuantizedScale(exponent, stored.zero_of(tensor.low))

    def exponent(self, name: str) -> int:
        """The exponent of a tensor. Raises UnsupportedError if it differs by channel."""
        exponent = self.tensors[name].exponent
        known = {exponent} if isinstance(exponent, int) else {*exponent}
        if len(known) > 1:
            raise UnsupportedError(
                "its scale differs by channel, which TFLite supports for weights only",
                node=name,
                hint="use a profile without `scaled_inputs`, or another format",
            )
        (one,) = known
        if abs(one) > LARGEST_EXPONENT:
            raise UnsupportedError(f"its scale 2^{-one} is not a normal float32", node=name)
        return one

    def zero(self, name: str) -> int:
        return self.scale_of(name).zero

    def add_tensor(
        self, name: str, stem: str | None = None, shape: Sequence[int] | None = None
    ) -> int:
        """A new tensor that is stored like a tensor of the program."""
        sizes = self.tensors[name].shape if shape is None else shape
        return self.model.tensor(stem or name, sizes, self.stored.type, self.scale_of(name))

    def reshaped(self, value: int, shape: Sequence[int], like: str, stem: str) -> int:
        """A value in another shape, stored like a tensor of the program."""
        sizes = np.asarray(shape, np.int32)
        made = self.add_tensor(like, stem, shape)
        inputs = [value, self.model.constant(f"{stem}/shape", sizes)]
        return self.model.operator("RESHAPE", inputs, made, "ReshapeOptions", NewShape=sizes)

    @property
    def sum_fields(self) -> Mapping[str, bool]:
        """Options of ADD and SUB: LiteRT has other int16 kernels for scales of powers of two."""
        return {} if self.stored.zero_points else {"PotScaleInt16": False}

    def as_stored(self, codes: Codes) -> Array:
        """Codes, with their zero point added, in the type of activations; they saturate."""
        return np.clip(codes, *self.stored.ends).astype(self.stored.type)

    # -- what executors require --------------------------------------------------------------

    def check_rounding(self, out: LayerOutput, executed: Rounding) -> None:
        shifts = {int(s) for s in np.atleast_1d(np.asarray(out.shift))}
        if not rounds_alike(out.rounding, executed, shifts):
            raise UnsupportedError(
                f"rounds {out.rounding}, but {self.arithmetic.described} {executed} here",
                node=out.name,
                hint=ANOTHER_PROFILE,
            )

    def check_sums(self, out: LayerOutput, limits: SumLimits) -> None:
        """Raise UnsupportedError unless executors requantize all sums of a layer exactly."""
        tensor = self.tensors[out.pending.sums]
        reach = max(-tensor.low, tensor.high)
        shifts = {int(np.min(out.shift)), int(np.max(out.shift))}
        shift = min(shifts, key=limits.largest_at)
        largest = limits.largest_at(shift)
        if reach > largest:
            others = [
                f", or profile `{one.name}`, which is exact for larger sums"
                for one in ARITHMETICS
                if one != self.arithmetic and one.stored == self.stored
                if reach <= one.sums.largest_at(shift)
            ]
            raise UnsupportedError(
                f"sums reach {reach:,}, but {self.arithmetic.executors[0]} is exact up to "
                f"{largest:,} only where they are shifted by {shift}",
                node=out.name,
                hint="".join(("use another format", *others[:1])),
            )

    def check_left_shift(self, out: LayerOutput, shift: int) -> None:
        """Raise UnsupportedError unless executors shift the sums of a layer so far to the left."""
        most = self.arithmetic.sums.left
        if -shift > most:
            raise UnsupportedError(
                f"sums are shifted left by {-shift}, but {self.arithmetic.executors[0]} supports "
                f"at most {most}",
                node=out.name,
                hint="use another format",
            )

    # -- limits ------------------------------------------------------------------------------

    def limits(self, out: LayerOutput) -> list[tuple[str, Codes]]:
        """Limits that saturation does not apply, as operators and stored codes."""
        zero = self.zero(out.name)
        low, high = out.low + zero, out.high + zero
        needed = [("MAXIMUM", low)] if (low > self.stored.low).any() else []
        return [*needed, *([("MINIMUM", high)] if (high < self.stored.high).any() else [])]

    def activation(self, out: LayerOutput) -> Mapping[str, int]:
        """The fused activation that applies all limits, as fields of options; empty if none."""
        needed = dict(self.limits(out))
        scale = self.scale_of(out.name)
        assert isinstance(scale.exponent, int)
        least = needed.get("MAXIMUM", np.asarray(scale.zero))
        six = np.ldexp(float(RELU6), scale.exponent) + scale.zero
        kind = ""
        if needed and (least == scale.zero).all():
            if "MINIMUM" not in needed:
                kind = "RELU"
            elif (needed["MINIMUM"] == six).all() and (out.low == 0).all():
                kind = "RELU6"
        return (
            {"FusedActivationFunction": self.model.enum("ActivationFunctionType", kind)}
            if kind
            else {}
        )

    def finish(self, value: int, out: LayerOutput, fused: bool) -> None:
        """Keep the result of an operator, within its limits if they are not fused into it."""
        limits, name = [] if fused else self.limits(out), out.name
        rank = len(self.tensors[name].shape)
        for i, (op, stored) in enumerate(limits, start=1):
            held = self.as_stored(stored)
            held = held.reshape((1,) * (rank - 1) + (-1,)) if rank else held.reshape(())
            bound = self.model.constant(f"{name}/limit", held, self.scale_of(name))
            made = self.add_tensor(name, None if i == len(limits) else f"{name}/{op.lower()}")
            value = self.model.operator(op, [value, bound], made, "MaximumMinimumOptions", 2)
        self.held[name] = value

    def result(self, out: LayerOutput, fused: bool) -> int:
        """The tensor for the result of an operator, before limits that are not fused into it."""
        limited = not fused and self.limits(out)
        return self.add_tensor(out.name, f"{out.name}/unlimited" if limited else None)


def indices_of_rows(program: Program) -> frozenset[str]:
    """Tensors that embeddings alone use, as indices, also limited by constants and reshaped."""
    kept = {step.output: step.inputs[0] for step in program.steps if _keeps_index(program, step)}
    found = {entry.tensor for entry in program.entries} | kept.keys()
    found &= {v for step in program.steps for v in step.inputs} - {*program.exits}
    for step in reversed(program.steps):
        if step.op != "embedding" and not (step.output in kept and step.output in found):
            found.difference_update(step.inputs)
    for name, source in kept.items():
        if source not in found:
            found.discard(name)
    return frozenset(found)


def _keeps_index(program: Program, step: Step) -> bool:
    """Whether the result of a step on indices is an index: their limits, or another shape."""
    if step.op in ("minimum", "maximum"):
        return step.inputs[0] not in program.constants and step.inputs[1] in program.constants
    return step.op in ("clip", "reshape")
