"""Form `onnx-integer`: integer ops only, for every profile.

Codes are in the smallest 8-bit type if an op supports it, otherwise in int32, or in int64 if bounds
need it. Convolutions and matrix products only use pairs of types that ONNX Runtime computes
correctly on every CPU: on x86 without VNNI, its kernels for (uint8, int8) saturate sums of two
products at 16 bits. Convolutions have the weights first, matrix products second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import numpy as np

from qgraph.backends.onnx.emission import Lower, ProgramEmission
from qgraph.backends.onnx.integer_steps import (
    operate,
    requantization,
    requantized_codes,
    softmax_codes,
    standardized_codes,
    with_numbers,
)
from qgraph.backends.onnx.requantize import INT32, Operate
from qgraph.backends.onnx.shared_lowerings import SHARED
from qgraph.errors import UnsupportedError
from qgraph.foreign import AttrValue
from qgraph.ir.types import Array
from qgraph.ops.lowerings import Lowerings
from qgraph.program import Step, Tensor
from qgraph.program.ops import OPS, LookupAttrs, MaxPoolAttrs, ReduceMaxAttrs

BYTES = ("int8", "uint8")
WEIGHTS_OF_CONV, WEIGHTS_OF_MATMUL = "int8", "uint8"


@dataclass(frozen=True)
class CodeByte:
    """One byte of a tensor's codes: 8 bits of `code // 2^shift`, as an ONNX value."""

    value: str
    shift: int
    low: int
    high: int


class IntegerEmission(ProgramEmission):
    form: ClassVar[str] = "onnx-integer"
    opset: ClassVar[int] = 18
    holds: ClassVar[str] = "codes"

    def working(self, *names: str) -> str:
        tensors = [self.tensors[name] for name in names]
        fits = all(t.low >= -INT32 and t.high <= INT32 for t in tensors)
        return "int32" if fits else "int64"

    def units(self, tensor: Tensor, codes: Array, dtype: str) -> Array:
        return np.asarray(codes).astype(dtype)

    def operate(self, op: str, a: str, b: str, dtype: str, stem: str) -> str:
        return operate(self.model, op, a, b, dtype, stem)

    def padded(self, step: Step, inputs: list[str], dtype: str, pooled: bool) -> str:
        value = self.model.add("Pad", inputs, step.output)
        if not pooled:
            return value
        lowest = self.model.constant(np.asarray(self.tensors[step.output].low, dtype), "lowest")
        return self.operate("Max", value, lowest, dtype, step.output)  # without an effect

    def enter(self) -> None:
        for entry in self.program.entries:
            name, dtype = entry.tensor, self.tensors[entry.tensor].storage
            self.model.input(name, dtype, self.shape(name))
            value = name if dtype in BYTES else self.cast(name, self.working(name), f"{name}/wide")
            self.put(name, value, dtype if dtype in BYTES else self.working(name))

    def leave(self) -> dict[str, dict[str, AttrValue]]:
        exits: dict[str, dict[str, AttrValue]] = {}
        for name in self.program.exits:
            dtype = self.tensors[name].storage
            value = self.get(name, dtype)
            output = self.outputs[name]
            self.model.append("Identity", [value], output)
            self.model.output(output, dtype, self.shape(name))
            exits[name] = {**self.described(name), "value": output}
        return exits

    # -- layers ------------------------------------------------------------------------------

    def _conv2d(self, step: Step) -> None:
        weights, groups = self.filters(step, self.constant_weights(step).astype(np.int64))
        attrs = self.convolution(step, groups)
        sums = []
        for x in self.parts(step.inputs[0], nchw=True):
            for shift, byte, zero in bytes_of(weights, WEIGHTS_OF_CONV):
                if not sums_fit(x, byte.astype(np.int64) - zero, axis=(1, 2, 3)):
                    raise UnsupportedError(
                        "sums of its 8-bit products exceed 32 bits, the limit of ConvInteger",
                        node=step.output,
                        hint="fewer bits, or a smaller layer",
                    )
                inputs = [x.value, self.model.constant(byte, step.inputs[1])]
                if zero:
                    inputs += ["", self.model.constant(np.int8(zero), f"{step.inputs[1]}/zero")]
                made = self.model.add("ConvInteger", inputs, step.output, **attrs)
                sums.append((made, x.shift + shift))
        self._joined(step, sums, nchw=True)

    def _depthwise_conv2d(self, step: Step) -> None:
        self._conv2d(step)

    def _matmul(self, step: Step) -> None:
        if not self._matmul_of_bytes(step):
            self._batch_matmul(step)

    def _batch_matmul(self, step: Step) -> None:
        dtype = self.working(*step.inputs, step.output)
        inputs = [self.get(v, dtype) for v in step.inputs]
        self.put(step.output, self.model.add("MatMul", inputs, step.output), dtype)

    def _matmul_of_bytes(self, step: Step) -> bool:
        """In 8 bits, if both operands fit them and the sums fit 32 bits."""
        x, w = step.inputs
        weights = self.program.constants.get(w)
        if weights is None or not (self._in_bytes(x) and self._in_bytes(w)):
            return False
        ((_, byte, zero),) = bytes_of(weights.astype(np.int64), WEIGHTS_OF_MATMUL)
        (part,) = self.parts(x)
        if not sums_fit(part, weights, axis=0):
            return False
        inputs = [part.value, self.model.constant(byte, w)]
        if zero:
            inputs += ["", self.model.constant(np.uint8(zero), f"{w}/zero")]
        self.put(step.output, self.model.add("MatMulInteger", inputs, step.output), "int32")
        return True

    def _joined(self, step: Step, sums: Sequence[tuple[str, int]], nchw: bool) -> None:
        """Join the products of bytes."""
        if len(sums) == 1:
            return self.put(step.output, sums[0][0], "int32", nchw)
        total = ""
        for value, shift in sums:
            wide = self.cast(value, "int64", f"{value}/int64")
            if shift:
                factor = self.model.constant(np.int64(1 << shift), f"2^{shift}")
                wide = self.model.add("Mul", [wide, factor], f"{value}/scaled")
            total = self.model.add("Add", [total, wide], step.output) if total else wide
        return self.put(step.output, total, "int64", nchw)

    def _in_bytes(self, name: str) -> bool:
        return self.tensors[name].storage in BYTES

    def parts(self, name: str, nchw: bool = False) -> list[CodeByte]:
        """A tensor as 8-bit tensors, lowest bits first."""
        tensor, dtype = self.tensors[name], self.working(name)
        if self._in_bytes(name):
            return [CodeByte(self.get(name, tensor.storage, nchw), 0, tensor.low, tensor.high)]
        rest, low, high = self.get(name, dtype, nchw), tensor.low, tensor.high
        found: list[CodeByte] = []
        number = self._number(dtype, name)
        while low < -128 or high > (255 if low >= 0 else 127):
            byte = number("BitwiseAnd", rest, 255)
            shift = 8 * len(found)
            found.append(
                CodeByte(self.cast(byte, "uint8", f"{name}/byte{len(found)}"), shift, 0, 255)
            )
            whole = self.model.add("Sub", [rest, byte], f"{name}/whole")
            rest, low, high = number("Div", whole, 256), low >> 8, high >> 8
        top = self.cast(rest, "uint8" if low >= 0 else "int8", f"{name}/byte{len(found)}")
        return [*found, CodeByte(top, 8 * len(found), low, high)]

    def _number(self, dtype: str, stem: str) -> Operate:
        return with_numbers(self.model, dtype, stem)

    # -- elementwise -------------------------------------------------------------------------

    def _requantize(self, step: Step) -> None:
        (name,) = step.inputs
        nchw, rule = self.made_as(name)[1], requantization(self, step)
        found = requantized_codes(self, step, self.get(name, rule.dtype, nchw), nchw)
        self.put(step.output, found, rule.dtype, nchw)

    def _lookup(self, step: Step) -> None:
        name, table = step.inputs
        dtype, nchw = self.working(name), self.made_as(name)[1]
        index = self.get(name, dtype, nchw)
        offset = step.attrs_as(LookupAttrs).offset
        if offset:
            index = self._number(dtype, step.output)("Sub", index, offset)
        held = self.tensors[table].storage
        held = held if held in BYTES else self.working(table)
        value = self.model.add("Gather", [self.get(table, held), index], step.output)
        self.put(step.output, value, held, nchw)

    def _standardize(self, step: Step) -> None:
        codes = self.get(step.inputs[0], "int64")
        self.put(step.output, standardized_codes(self, step, codes), "int64")

    def _softmax(self, step: Step) -> None:
        x, table = step.inputs
        dtype = self.working(x)
        found = softmax_codes(self, step, self.get(x, dtype), dtype, self.get(table, "int64"))
        self.put(step.output, found, "int64")

    def _max_pool(self, step: Step) -> None:
        (name,) = step.inputs
        if self._in_bytes(name):
            dtype = self.pooled_as(name)
            window = self.pool(step.attrs_as(MaxPoolAttrs))
            value = self.model.add("MaxPool", [self.get(name, dtype, True)], step.output, **window)
        else:
            dtype = self.working(name)
            value = self._pool_by_slices(step, dtype)
        self.put_moved(step, value, dtype, True)

    def pooled_as(self, name: str) -> str:
        """The type in which codes of 8 bits are pooled."""
        return self.tensors[name].storage

    def _pool_by_slices(self, step: Step, dtype: str) -> str:
        """The largest of all taps, one axis after the other: ONNX has no pool for wide codes."""
        (name,), attrs = step.inputs, step.attrs_as(MaxPoolAttrs)
        value = self.get(name, dtype, True)
        pads = np.array([(0, 0), (0, 0), *attrs.pads], np.int64).T.reshape(-1)
        if pads.any():
            lowest = self.model.constant(np.asarray(self.tensors[name].low, dtype), "lowest")
            inputs = [value, self.model.constant(pads, f"{step.output}/pads"), lowest]
            value = self.model.add("Pad", inputs, f"{step.output}/padded")
        sizes = self.tensors[step.output].shape[1:3]
        for axis, size in enumerate(sizes):
            stride, taps = attrs.strides[axis], attrs.ksize[axis]
            value = self._largest(step, value, axis + 2, dtype, taps, stride, size)
        return value

    def _largest(
        self, step: Step, value: str, axis: int, dtype: str, taps: int, stride: int, size: int
    ) -> str:
        """The largest of `taps` slices of `size` along an axis, each shifted by one more."""
        slices = []
        for tap in range(taps):
            cut = (tap, tap + stride * (size - 1) + 1, axis, stride)
            bounds = [self.model.constant(np.array([c], np.int64), "cut") for c in cut]
            slices.append(self.model.add("Slice", [value, *bounds], f"{step.output}/slice"))
        return reduce(lambda a, b: self.operate("Max", a, b, dtype, step.output), slices)

    def _reduce_max(self, step: Step) -> None:
        (name,) = step.inputs
        attrs = step.attrs_as(ReduceMaxAttrs)
        axes = attrs.axes
        if self.working(name) == "int32" or not axes:
            return super()._reduce_max(step)
        value = self.get(name, "int64")  # ReduceMax also uses the low 32 bits only
        for axis in axes:
            value = self._largest(step, value, axis, "int64", self.tensors[name].shape[axis], 1, 1)
        if not attrs.keepdims:
            where = self.model.constant(np.array(axes, np.int64), f"{step.output}/axes")
            value = self.model.add("Squeeze", [value, where], step.output)
        return self.put(step.output, value, "int64")

    lowerings: ClassVar[Lowerings[Lower]] = Lowerings(
        "backends/onnx/integer",
        OPS,
        {
            **SHARED,
            "conv2d": _conv2d,
            "depthwise_conv2d": _depthwise_conv2d,
            "matmul": _matmul,
            "batch_matmul": _batch_matmul,
            "requantize": _requantize,
            "lookup": _lookup,
            "standardize": _standardize,
            "softmax": _softmax,
            "max_pool": _max_pool,
            "reduce_max": _reduce_max,
        },
    )


def sums_fit(x: CodeByte, weights: Array, axis: int | tuple[int, ...] | None) -> bool:
    """Whether 32 bits hold every sum of products over the axes of the weights."""
    largest = int(np.abs(weights.astype(np.int64)).sum(axis).max(initial=0))
    return largest * max(-x.low, x.high) <= INT32


def bytes_of(codes: Array, dtype: str) -> list[tuple[int, Array, int]]:
    """Constant codes as bytes of one type, lowest first: (shift, stored, zero point) of each."""
    found: list[tuple[int, Array, int]] = []
    low, high = int(codes.min(initial=0)), int(codes.max(initial=0))
    shift = 0
    while True:
        last = low >= -128 and high <= (255 if low >= 0 else 127)
        byte = codes if last else codes & 255
        if dtype == "int8":
            zero = -128 if byte.max(initial=0) > 127 else 0
        else:
            zero = 128 if byte.min(initial=0) < 0 else 0
        found.append((shift, (byte + zero).astype(dtype), zero))
        if last:
            return found
        codes, low, high, shift = codes >> 8, low >> 8, high >> 8, shift + 8
