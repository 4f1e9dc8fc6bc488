"""Form `qonnx`: float ops and Quant nodes, as the `qonnx` package executes them.

Quant divides by its scale, clips, rounds and multiplies, which is exact for powers of two. Its
ROUND is half to even and its HALF_UP is half away from zero; half up is written as FLOOR after
adding half a step, and `double` as half away after a Ceil of half the codes. Sums beyond 2^24 are
in float64, which every op except Conv supports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import onnx

from qgraph.backends.onnx.emission import NO_NAMES
from qgraph.backends.onnx.float_values import ValueEmission, reach, value_lowerings
from qgraph.backends.onnx.layouts import turned
from qgraph.errors import UnsupportedError
from qgraph.exact.sums import FLOAT32_EXACT, FLOAT64_EXACT
from qgraph.ir.types import Array, QuantSpec, Role, Rounding
from qgraph.ops.movement import TO_NCHW
from qgraph.program import Program, Step
from qgraph.program.ops import RequantizeAttrs

DOMAIN = "qonnx.custom_op.general"
ROUNDING = {
    Rounding.HALF_EVEN: "ROUND",
    Rounding.HALF_AWAY: "HALF_UP",
    Rounding.HALF_UP: "FLOOR",
    Rounding.FLOOR: "FLOOR",
    Rounding.DOUBLE: "HALF_UP",
}
ADDS_HALF = (Rounding.HALF_UP, Rounding.HALF_AWAY, Rounding.DOUBLE)


class QonnxEmission(ValueEmission):
    form: ClassVar[str] = "qonnx"
    opset: ClassVar[int] = 18
    exact: ClassVar[int] = FLOAT64_EXACT
    roundings: ClassVar[tuple[Rounding, ...]] = tuple(ROUNDING)

    def __init__(self, program: Program, publics: Mapping[str, str] = NO_NAMES) -> None:
        super().__init__(program, publics)
        self.model.domains[DOMAIN] = 1

    def emit(self) -> onnx.ModelProto:
        # The executor needs the shape of every value.
        return onnx.shape_inference.infer_shapes(super().emit(), strict_mode=True)

    def shape(self, name: str) -> tuple[int | str, ...]:
        return self.tensors[name].shape

    def working(self, *names: str) -> str:
        wide = any(reach(self.tensors[name]) > FLOAT32_EXACT for name in names)
        return "float64" if wide else "float32"

    # -- quantizers --------------------------------------------------------------------------

    def quantized(self, value: str, name: str, spec: QuantSpec, nchw: bool) -> str:
        tensor = self.tensors[name]
        shape = tensor.shape
        if reach(tensor) > FLOAT32_EXACT:
            raise UnsupportedError(
                f"its codes are {tensor.low:,}..{tensor.high:,}, but Quant returns float32",
                node=name,
                hint="use the format onnx-integer",
            )
        if spec.signed and spec.bits == 1:
            raise UnsupportedError(
                "its codes are -1..0, which Quant with 1 bit does not support",
                node=name,
                hint="use another format",
            )
        dtype = self._type_before(name, spec.rounding)
        if name in self.inputs and dtype == "float64":
            value = self.cast(value, dtype, f"{name}/wide")
        if spec.rounding == Rounding.HALF_UP:
            half = np.ldexp(0.5, -np.asarray(tensor.exponent)).astype(dtype)
            half = half.reshape(-1, 1, 1) if nchw and half.ndim else half
            added = self.model.constant(half, f"{name}/half")
            value = self.model.add("Add", [value, added], f"{name}/raised")
        if nchw:
            shape = tuple(shape[i] for i in TO_NCHW)
        scale = self._scale(name, -3 if nchw else -1, len(shape))
        return self._quant(value, name, scale, spec, shape)

    def _requantized(self, value: str, step: Step, nchw: bool) -> str:
        """Values rounded as a step needs; for `double`, odd codes are first increased by one."""
        attrs, name = step.attrs_as(RequantizeAttrs), step.inputs[0]
        drops = np.asarray(attrs.shift) > 0
        if attrs.rounding == Rounding.DOUBLE and drops.any():
            unit = np.ldexp(1.0, np.asarray(self.tensors[name].exponent))
            half = np.where(drops, 0.5, 1.0)
            for op, by in (
                ("Mul", unit),
                ("Mul", half),
                ("Ceil", None),
                ("Mul", 1 / half),
                ("Mul", 1 / unit),
            ):
                numbers = (
                    [] if by is None else [self._along(by, nchw, self.working(name), step.output)]
                )
                value = self.model.add(op, [value, *numbers], f"{step.output}/even")
        return super()._requantized(value, step, nchw)

    def _along(self, numbers: Array, nchw: bool, dtype: str, name: str) -> str:
        """A constant, one for all or one for each channel."""
        numbers = np.asarray(numbers).astype(dtype)
        shaped = numbers.reshape(-1, 1, 1) if nchw and numbers.ndim else numbers
        return self.model.constant(shaped, f"{name}/numbers")

    def _type_before(self, name: str, rounding: Rounding) -> str:
        """The type of a quantizer's input; its output is float32.

        An input may be any float32. Just below half a step, adding half a step gives a whole step
        in float32, but not in float64.
        """
        if name in self.inputs:
            return "float64" if rounding in ADDS_HALF else "float32"
        (source,) = (s.inputs[0] for s in self.program.steps if s.output == name)
        return self.working(source)

    def _scale(self, name: str, axis: int, rank: int) -> str:
        """Scales of a tensor, in a shape along one of its axes."""
        power = np.ldexp(np.float32(1), -np.asarray(self.tensors[name].exponent))
        if power.ndim:
            power = power.reshape((-1,) + (1,) * (rank - 1 - axis % rank))
        return self.model.constant(power.astype(np.float32), f"{name}/scale")

    def _quant(
        self, value: str, name: str, scale: str, spec: QuantSpec, shape: tuple[int, ...]
    ) -> str:
        zero = self.model.constant(np.float32(0), "zero")
        bits = self.model.constant(np.float32(spec.bits), f"bits{spec.bits}")
        made = self.model.add(
            "Quant",
            [value, scale, zero, bits],
            name,
            domain=DOMAIN,
            signed=int(spec.signed),
            narrow=0,
            rounding_mode=ROUNDING[spec.rounding],
        )
        self.model.know(made, "float32", shape)
        return made

    # -- constants ---------------------------------------------------------------------------

    def _constant_quant(self, name: str, values: Array, axis: int) -> str:
        """Values on their grid, and a Quant that declares the grid."""
        tensor = self.tensors[name]
        signed = tensor.low < 0
        reach = max(-tensor.low - 1, tensor.high)
        spec = QuantSpec(max(reach.bit_length() + signed, 2), signed, Role.CONSTANT)
        held = self.model.constant(values, f"{name}/values")
        return self._quant(held, name, self._scale(name, axis, values.ndim), spec, values.shape)

    def constant(self, name: str, dtype: str, nchw: bool = False) -> str:
        values = self.units(self.tensors[name], self.program.constants[name], dtype)
        values = turned(values) if nchw else values
        if dtype == "float64":
            return self.model.constant(values, name)
        return self._constant_quant(name, values, -3 if nchw else -1)

    def weights(self, name: str, codes: Array, axis: int, x: str | None) -> str:
        return self._constant_quant(name, self.weight_values(name, codes, axis), axis)

    # -- ops ---------------------------------------------------------------------------------

    def _conv2d(self, step: Step) -> None:
        largest = max(reach(self.tensors[v]) for v in (*step.inputs, step.output))
        if largest > FLOAT32_EXACT:
            raise UnsupportedError(
                f"sums reach {largest:,}, but float32 is exact up to {FLOAT32_EXACT:,} only",
                node=step.output,
                hint="use the format onnx-integer",
            )
        super()._conv2d(step)

    def _requantize(self, step: Step) -> None:
        attrs = step.attrs_as(RequantizeAttrs)
        largest = reach(self.tensors[step.inputs[0]])
        half = 1 << max(0, min(int(np.max(attrs.shift)) - 1, 60))
        if attrs.rounding in ADDS_HALF:
            limit = FLOAT32_EXACT if largest <= FLOAT32_EXACT else FLOAT64_EXACT
            if largest + half > limit:
                raise UnsupportedError(
                    f"half a step added to {largest:,} exceeds the precision of floats",
                    node=step.output,
                    hint="use the format onnx-integer",
                )
        super()._requantize(step)

    def table(self, step: Step, index: str) -> str:
        name = step.inputs[1]
        values = self.units(self.tensors[name], self.program.constants[name], "float32")
        return self.model.add("Gather", [self.model.constant(values, name), index], step.output)

    lowerings = value_lowerings("backends/onnx/qonnx", form, conv2d=_conv2d, requantize=_requantize)
