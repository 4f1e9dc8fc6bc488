"""Form `onnx-qoperator`: QLinear ops, with float inputs and outputs.

`qoperator_groups` finds what a QLinear op computes exactly. All other steps are written as in
`onnx-integer`, so every program with inputs and outputs up to 2^24 is supported. Codes of 8 bits
are uint8 in QLinear ops; those with a sign have zero point 128.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

import numpy as np

from qgraph.backends.onnx.boundary_models import codes_of_values, values_of_codes
from qgraph.backends.onnx.emission import NO_NAMES, Lower, float_inputs
from qgraph.backends.onnx.integer import BYTES, IntegerEmission
from qgraph.backends.onnx.qoperator_groups import (
    MOST_STORED,
    PRODUCTS,
    LinearGroup,
    LinearGroups,
    zero_of,
    zero_of_weights,
)
from qgraph.errors import UnsupportedError
from qgraph.exact.sums import FLOAT32_EXACT
from qgraph.foreign import AttrValue
from qgraph.ir.types import AnyExponent, Array, Overflow, Rounding
from qgraph.ops.lowerings import Lowerings
from qgraph.program import Entry, Program, Step, Tensor
from qgraph.program.ops import OPS

BYTE = "uint8"  # of activations and weights in QLinear ops
MICROSOFT = "com.microsoft"  # ONNX Runtime's own ops


def _by_group(lower: Lower) -> Lower:
    """The lowering of an op, unless a QLinear op computes the step."""

    def write(emission: QOperatorEmission, step: Step) -> None:
        group = emission.linear.by_output.get(step.output)
        if group is not None:
            emission.write(group)
        elif step.output not in emission.linear.absorbed:
            lower(emission, step)

    return write


class QOperatorEmission(IntegerEmission):
    """`linear`: the groups that QLinear ops compute."""

    form: ClassVar[str] = "onnx-qoperator"
    holds: ClassVar[str] = "values"

    def __init__(
        self,
        program: Program,
        publics: Mapping[str, str] = NO_NAMES,
        reserved: Collection[str] = (),
    ) -> None:
        super().__init__(program, publics, reserved)
        self.linear = LinearGroups(program)

    def inputs_of_model(self) -> dict[str, str]:
        return float_inputs(self.program)

    @property
    def layers(self) -> list[str]:
        """Convolutions and products of matrices."""
        return [step.output for step in self.program.steps if step.op in PRODUCTS]

    @property
    def not_linear(self) -> list[str]:
        """Layers that are written as ConvInteger, MatMulInteger or MatMul."""
        return [name for name in self.layers if name not in self.linear.absorbed]

    # -- entries and exits -------------------------------------------------------------------

    def enter(self) -> None:
        for entry in self.program.entries:
            name, tensor = entry.tensor, self.tensors[entry.tensor]
            value = self.inputs[name]
            self.model.input(value, "float32", self.shape(name))
            if _is_quantize_linear(entry, tensor):
                grid = self._grid(tensor.exponent, zero_of(tensor), name)
                codes = self.model.add("QuantizeLinear", [value, *grid], f"{name}/codes")
                self.put_stored(name, codes)
            else:
                wide = self.cast(value, "float64", f"{name}/float64")
                codes = codes_of_values(self.model, wide, entry.spec, tensor.exponent)
                dtype = self.working(name)
                self.put(name, self.cast(codes, dtype, f"{name}/codes"), dtype)

    def leave(self) -> dict[str, dict[str, AttrValue]]:
        exits: dict[str, dict[str, AttrValue]] = {}
        for name in self.program.exits:
            tensor, output = self.tensors[name], self.outputs[name]
            if max(-tensor.low, tensor.high) > FLOAT32_EXACT:
                raise UnsupportedError(
                    f"its codes reach {max(-tensor.low, tensor.high):,}, but float32 outputs are "
                    f"exact up to {FLOAT32_EXACT:,} only",
                    node=name,
                    hint="use the format onnx-integer",
                )
            if isinstance(tensor.exponent, int) and tensor.storage in BYTES:
                grid = self._grid(tensor.exponent, zero_of(tensor), name)
                self.model.append("DequantizeLinear", [self.get(name, BYTE), *grid], output)
            else:
                codes = self.get(name, self.working(name))
                value = values_of_codes(self.model, codes, tensor.exponent, f"{name}/float")
                self.model.append("Identity", [value], output)
            self.model.output(output, "float32", self.shape(name))
            exits[name] = {**self.described(name), "value": output}
        return exits

    def _shown(self, name: str) -> dict[str, AttrValue]:
        (dtype, _), _ = next(iter(self.held[name].items()))
        return {**super()._shown(name), "zero": self._zero(name, dtype)}

    # -- tensors -----------------------------------------------------------------------------

    def _zero(self, name: str, dtype: str) -> int:
        """The zero point of a tensor that is held in a type."""
        return zero_of(self.tensors[name]) if dtype == BYTE else 0

    def units(self, tensor: Tensor, codes: Array, dtype: str) -> Array:
        shifted = np.asarray(codes, np.int64) + (zero_of(tensor) if dtype == BYTE else 0)
        return shifted.astype(dtype)

    def get(self, name: str, dtype: str, nchw: bool = False) -> str:
        held, zero = self.held.get(name, {}), zero_of(self.tensors[name])
        known = {(dtype, nchw), (dtype, not nchw)} & held.keys()
        if name in self.program.constants or known or not zero:
            return super().get(name, dtype, nchw)
        # Stored bytes are codes plus the zero point.
        plain = next((kind for kind, _ in held if kind != BYTE), None)
        if dtype == BYTE:
            codes = self._number("int32", name)("Add", self.get(name, "int32", nchw), zero)
        elif plain is not None:
            codes = self.get(name, plain, nchw)
        else:
            wide = self.cast(self.get(name, BYTE, nchw), "int32", f"{name}/wide")
            codes = self._number("int32", name)("Sub", wide, zero)
        is_made = dtype == "int32" and plain is None
        made = codes if is_made else self.cast(codes, dtype, f"{name}/{dtype}")
        super().put(name, made, dtype, nchw)
        return made

    def put(self, name: str, value: str, dtype: str, nchw: bool = False) -> None:
        if dtype == BYTE and zero_of(self.tensors[name]):  # codes that are never below 0
            value, dtype = self.cast(value, "int32", f"{name}/wide"), "int32"
        super().put(name, value, dtype, nchw)

    def put_stored(self, name: str, value: str, nchw: bool = False) -> None:
        """Like `put`, for codes plus the zero point."""
        super().put(name, value, BYTE, nchw)

    def put_moved(self, step: Step, value: str, dtype: str, nchw: bool = False) -> None:
        source = next(v for v in step.inputs if v not in self.program.constants)
        zero = zero_of(self.tensors[source])
        if dtype != BYTE:
            self.put(step.output, value, dtype, nchw)
        elif zero == zero_of(self.tensors[step.output]):
            self.put_stored(step.output, value, nchw)
        else:
            wide = self.cast(value, "int32", f"{step.output}/wide")
            wide = self._number("int32", step.output)("Sub", wide, zero)
            self.put(step.output, wide, "int32", nchw)

    def _grid(self, exponent: AnyExponent, zero: int, stem: str) -> list[str]:
        """Scale and zero point, as inputs of a node."""
        power = np.ldexp(np.float32(1), -np.asarray(exponent)).astype(np.float32)
        return [
            self.model.constant(power, f"{stem}/scale"),
            self.model.constant(np.full(power.shape, zero, BYTE), f"{stem}/zero"),
        ]

    def _operand(self, name: str, exponent: AnyExponent, nchw: bool) -> list[str]:
        """A tensor with its scale and zero point, as inputs of a node."""
        value = self.get(name, BYTE, nchw)
        return [value, *self._grid(exponent, zero_of(self.tensors[name]), name)]

    # -- groups ------------------------------------------------------------------------------

    def write(self, group: LinearGroup) -> None:
        """A QLinear op, and a Clip if it has limits within those of uint8."""
        step, (x, *_) = group.step, group.operands
        if step is None:
            value, nchw = self._rescaled(group), self.made_as(x.name)[1]
        elif step.op in ("conv2d", "depthwise_conv2d"):
            value, nchw = self._convolution(group, step), True
        elif step.op == "matmul":
            value, nchw = self._product(group, step), False
        elif step.op == "batch_matmul":
            value, nchw = self._product_of_two(group), False
        else:
            value, nchw = self._terms(group, step)
        name, zero = group.out.name, zero_of(self.tensors[group.out.name])
        if group.limits != (None, None):
            low, high = group.limits
            ends = (0 if low is None else low + zero, MOST_STORED if high is None else high + zero)
            limits = [self.model.constant(np.uint8(end), f"{name}/limit") for end in ends]
            value = self.model.add("Clip", [value, *limits], name)
        self.put_stored(name, value, nchw)

    def _scale_of_second(self, group: LinearGroup) -> AnyExponent:
        """The exponent of the second operand, so that the results are shifted by the shift."""
        x, out = self.tensors[group.operands[0].name], group.out
        moved = np.asarray(out.shift) + self.tensors[out.name].exponent - np.asarray(x.exponent)
        return int(moved) if moved.ndim == 0 else moved

    def _result(self, group: LinearGroup) -> list[str]:
        tensor = self.tensors[group.out.name]
        return self._grid(tensor.exponent, zero_of(tensor), tensor.name)

    def _first(self, group: LinearGroup, nchw: bool) -> list[str]:
        name = group.operands[0].name
        return self._operand(name, self.tensors[name].exponent, nchw)

    def _weights(self, group: LinearGroup, codes: Array) -> list[str]:
        zero, stem = zero_of_weights(codes), group.operands[1].name
        assert zero is not None
        held = self.model.constant((codes.astype(np.int64) + zero).astype(BYTE), stem)
        return [held, *self._grid(self._scale_of_second(group), zero, stem)]

    def _bias(self, group: LinearGroup) -> list[str]:
        if group.bias is None:
            return []
        return [self.model.constant(group.bias.astype(np.int32), f"{group.out.name}/bias")]

    def _convolution(self, group: LinearGroup, step: Step) -> str:
        weights, factors = self.constant_weights(step), group.out.pending.factors
        if factors is None:
            return self._filtered(group, step, weights)
        first, *others = np.unique(factors)
        value = self._filtered(group, step, weights.astype(np.int64) * first)
        for factor in others:
            part = self._filtered(group, step, weights.astype(np.int64) * factor)
            places = (factors == factor).transpose(0, 3, 1, 2)
            chosen = self.model.constant(places, f"{group.out.name}/places of {factor}")
            value = self.model.add("Where", [chosen, part, value], group.out.name)
        return value

    def _filtered(self, group: LinearGroup, step: Step, weights: Array) -> str:
        codes, groups = self.filters(step, weights)
        inputs = [*self._first(group, True), *self._weights(group, codes)]
        inputs += [*self._result(group), *self._bias(group)]
        attrs = self.convolution(step, groups)
        return self.model.add("QLinearConv", inputs, group.out.name, **attrs)

    def _product(self, group: LinearGroup, step: Step) -> str:
        codes = self.constant_weights(step)
        inputs = [*self._first(group, False), *self._weights(group, codes)]
        if group.bias is None:
            return self.model.add("QLinearMatMul", [*inputs, *self._result(group)], group.out.name)
        inputs += [*self._bias(group), *self._result(group)]
        return self._own_op("QGemm", inputs, group.out.name, nchw=False)

    def _product_of_two(self, group: LinearGroup) -> str:
        second = self._operand(group.operands[1].name, self._scale_of_second(group), False)
        inputs = [*self._first(group, False), *second, *self._result(group)]
        return self.model.add("QLinearMatMul", inputs, group.out.name)

    def _terms(self, group: LinearGroup, step: Step) -> tuple[str, bool]:
        """A sum or a product, element by element."""
        a, b = group.operands
        nchw = self.is_nchw(step)
        if step.op == "mul":
            inputs = self._first(group, nchw)
            inputs += self._operand(b.name, self._scale_of_second(group), nchw)
        else:
            exponent = int(group.out.shift) + int(self._exponent(group.out.name))
            inputs = self._operand(a.name, exponent - a.shift, nchw)
            inputs += self._operand(b.name, exponent - b.shift, nchw)
        op = "QLinearMul" if step.op == "mul" else "QLinearAdd"
        return self._own_op(op, [*inputs, *self._result(group)], group.out.name, nchw), nchw

    def _rescaled(self, group: LinearGroup) -> str:
        """Codes times 1 with another scale."""
        name = group.operands[0].name
        nchw = self.made_as(name)[1]
        one = self.model.constant(np.uint8(1), "one")
        inputs = [*self._first(group, nchw), one]
        inputs += self._grid(self._scale_of_second(group), 0, group.out.name)
        return self._own_op("QLinearMul", [*inputs, *self._result(group)], group.out.name, nchw)

    def _exponent(self, name: str) -> int:
        exponent = self.tensors[name].exponent
        assert isinstance(exponent, int)
        return exponent

    def _own_op(self, op: str, inputs: list[str], name: str, nchw: bool) -> str:
        """An op that only ONNX Runtime defines."""
        self.model.domains[MICROSOFT] = 1
        made = self.model.add(op, inputs, name, domain=MICROSOFT)
        shape = self.shape(name)
        if nchw:
            shape = (shape[0], shape[3], shape[1], shape[2])
        self.model.know(made, BYTE, shape)
        return made

    # -- moves -------------------------------------------------------------------------------

    def joined_as(self, step: Step) -> str:
        zeros = {zero_of(self.tensors[v]) for v in (*step.inputs, step.output)}
        dtype = super().joined_as(step)
        return dtype if dtype != BYTE or len(zeros) == 1 else self.working(*step.inputs)

    def pooled_as(self, name: str) -> str:
        return self.made_as(name)[0] if self.made_as(name)[0] == BYTE else super().pooled_as(name)

    def padded_as(self, step: Step) -> str:
        (name,), zero = step.inputs, zero_of(self.tensors[step.output])
        stored = self.made_as(name)[0] == BYTE and zero_of(self.tensors[name]) == zero
        return BYTE if stored else super().padded_as(step)

    def padded(self, step: Step, inputs: list[str], dtype: str, pooled: bool) -> str:
        if dtype != BYTE:
            return super().padded(step, inputs, dtype, pooled)
        zero = np.uint8(zero_of(self.tensors[step.output]))
        constant = self.model.constant(zero, f"{step.output}/zero")
        return self.model.add("Pad", [*inputs, constant], step.output)

    lowerings: ClassVar[Lowerings[Lower]] = Lowerings(
        "backends/onnx/qoperator",
        OPS,
        {op: _by_group(lower) for op, lower in IntegerEmission.lowerings.lowered.items()},
    )


def _is_quantize_linear(entry: Entry, tensor: Tensor) -> bool:
    """Whether a QuantizeLinear to uint8 gives the codes of an entry."""
    spec, zero = entry.spec, zero_of(tensor)
    rounds = spec.rounding == Rounding.HALF_EVEN and spec.overflow == Overflow.SATURATE
    limits = (spec.lo, spec.hi) == (-zero, MOST_STORED - zero)
    return rounds and limits and isinstance(tensor.exponent, int)
