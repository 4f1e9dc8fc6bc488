"""Tensors of a program in a `.tflite` file, and what executors require of them.

Codes that are never negative are stored as int8 with zero point -128, others with zero point 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.backends.pending_layers import LayerOutput
from qgraph.backends.tflite.arithmetic import INT32_MAX, TfliteArithmetic, rounds_alike
from qgraph.backends.tflite.model_builder import QuantizedScale, TfliteModelBuilder
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Codes, Rounding
from qgraph.program import Program

BYTE = (-128, 127)
UNSIGNED_BYTE = 255
LARGEST_EXPONENT = 126
RELU6 = 6
ANOTHER_PROFILE = "use profile `litert` or `tflm`, or another format"


class TensorWriter(ABC):
    """Writes tensors and operators; `held` has the number of each tensor of the program."""

    def __init__(
        self, program: Program, arithmetic: TfliteArithmetic, builder: TfliteModelBuilder
    ) -> None:
        self.program, self.arithmetic, self.model = program, arithmetic, builder
        self.tensors = program.tensors
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
        """How a tensor is stored: indices of rows in int32, others in int8.

        Raises UnsupportedError if int8 cannot hold it.
        """
        tensor, exponent = self.tensors[name], self.exponent(name)
        if name in self.indices:
            return QuantizedScale(exponent)
        zero = BYTE[0] if tensor.low >= 0 else 0
        if not BYTE[0] <= tensor.low + zero <= tensor.high + zero <= BYTE[1]:
            raise UnsupportedError(
                f"its codes are {tensor.low:,}..{tensor.high:,}, which do not fit in 8 bits",
                node=name,
                hint="set `signed_activations: true` in the profile"
                if BYTE[0] <= tensor.low and tensor.high <= UNSIGNED_BYTE
                else ANOTHER_PROFILE,
            )
        return QuantizedScale(exponent, zero)

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
        return self.model.tensor(stem or name, sizes, "int8", self.scale_of(name))

    def reshaped(self, value: int, shape: Sequence[int], like: str, stem: str) -> int:
        """A value in another shape, stored like a tensor of the program."""
        sizes = np.asarray(shape, np.int32)
        made = self.add_tensor(like, stem, shape)
        inputs = [value, self.model.constant(f"{stem}/shape", sizes)]
        return self.model.operator("RESHAPE", inputs, made, "ReshapeOptions", NewShape=sizes)

    # -- what executors require --------------------------------------------------------------

    def check_rounding(self, out: LayerOutput, executed: Rounding) -> None:
        shifts = {int(s) for s in np.atleast_1d(np.asarray(out.shift))}
        if not rounds_alike(out.rounding, executed, shifts):
            raise UnsupportedError(
                f"rounds {out.rounding}, but {self.arithmetic.described} {executed} here",
                node=out.name,
                hint=ANOTHER_PROFILE,
            )

    def check_sums(self, out: LayerOutput) -> None:
        """Raise UnsupportedError unless executors requantize all sums of a layer exactly."""
        tensor = self.tensors[out.pending.sums]
        reach, shift = max(-tensor.low, tensor.high), int(np.min(out.shift))
        largest, own = self.arithmetic.largest_sum, self.arithmetic.largest_sum < INT32_MAX
        if shift < self.arithmetic.fixed_point_below:
            # The multiplier is 2^30, so that a shift by less than one bit begins with a left shift.
            largest = min(largest, INT32_MAX >> 1 - shift)
        if reach > largest:
            raise UnsupportedError(
                f"sums reach {reach:,}, but {self.arithmetic.executors[0]} is exact up to "
                f"{largest:,} only where they are shifted by {shift}",
                node=out.name,
                hint="use another format"
                + (", or profile `tflm`, which is exact for larger sums" if own else ""),
            )

    def check_left_shift(self, out: LayerOutput, shift: int) -> None:
        """Raise UnsupportedError unless executors shift the sums of a layer so far to the left."""
        most = self.arithmetic.largest_left_shift
        if -shift > most:
            raise UnsupportedError(
                f"sums are shifted left by {-shift}, but {self.arithmetic.executors[0]} supports "
                f"at most {most}",
                node=out.name,
                hint="use another format",
            )

    # -- limits ------------------------------------------------------------------------------

    def limits(self, out: LayerOutput) -> list[tuple[str, Codes]]:
        """Limits that saturation to int8 does not apply, as operators and stored codes."""
        zero = self.zero(out.name)
        low, high = out.low + zero, out.high + zero
        needed = [("MAXIMUM", low)] if (low > BYTE[0]).any() else []
        return [*needed, *([("MINIMUM", high)] if (high < BYTE[1]).any() else [])]

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
            held = np.clip(stored, *BYTE).astype(np.int8)
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
    """Tensors that embeddings alone use, as indices."""
    found = {entry.tensor for entry in program.entries}
    found |= {step.output for step in program.steps if step.op == "clip"}
    for step in reversed(program.steps):
        if step.op != "embedding" and not (step.op == "clip" and step.output in found):
            found.difference_update(step.inputs)
    used = {v for step in program.steps for v in step.inputs}
    return frozenset(found & used - {*program.exits})
