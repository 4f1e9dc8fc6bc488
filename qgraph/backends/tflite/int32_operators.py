"""Softmax and layer norm in `.tflite` files, written from operators on int32.

Executors compute a SOFTMAX by tables of their own, and have no layer norm. On int32 they agree:
ADD, SUB, MUL, DIV, MAXIMUM and MINIMUM are exact. TFLM sums rows and reads tables in float32 only,
which is exact below 2^24. Other floats only begin a root or a quotient, which int32 corrects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.backends.int32_rows import Int32Rows
from qgraph.backends.int32_values import Int32Op, Int32Value, Int32Writer
from qgraph.backends.tflite.writer import TensorWriter
from qgraph.ir.types import Codes
from qgraph.program import Step
from qgraph.program.ops import SoftmaxProgramAttrs, StandardizeAttrs

OPERATORS: Mapping[Int32Op, tuple[str, str, int]] = {
    Int32Op.ADD: ("ADD", "AddOptions", 2),
    Int32Op.SUBTRACT: ("SUB", "SubOptions", 2),
    Int32Op.MULTIPLY: ("MUL", "MulOptions", 2),
    Int32Op.DIVIDE: ("DIV", "DivOptions", 1),
    Int32Op.MAXIMUM: ("MAXIMUM", "MaximumMinimumOptions", 2),
    Int32Op.MINIMUM: ("MINIMUM", "MaximumMinimumOptions", 2),
}
FLOAT_EXACT = (1 << 24) - 1  # sums of integers below it are exact in float32
HALF_BITS = 26  # of squares, in `near_root`


class TfliteInt32(Int32Writer[int]):
    """Operators on matrices; values are numbers of tensors in the file."""

    largest_row_sum = FLOAT_EXACT

    def __init__(self, writer: TensorWriter, node: str) -> None:
        super().__init__(node)
        self.writer, self.model = writer, writer.model
        self.shapes: dict[int, tuple[int, ...]] = {}

    # -- int32 -------------------------------------------------------------------------------

    def write(self, op: Int32Op, a: int, b: int) -> int:
        name, options, version = OPERATORS[op]
        return self._operator(name, [a, b], "int32", options, version)

    def write_number(self, number: int) -> int:
        return self._constant(np.array([[number]], np.int32))

    def write_entries(self, table: Codes, index: int) -> int:
        """TFLM has GATHER for float32 and int8 only."""
        held = self.model.constant(f"{self.node}/table", table.astype(np.float32))
        found = self._tensor("float32", self.shapes[index])
        self.model.operator("GATHER", [held, index], found, "GatherOptions", 2, Axis=0)
        return self.cast(found, "int32")

    def write_row_sum(self, x: int) -> int:
        axes = self.model.constant(f"{self.node}/axis", np.array([1], np.int32))
        made = self._tensor("float32", (self.shapes[x][0], 1))
        inputs = [self.cast(x, "float32"), axes]
        self.model.operator("SUM", inputs, made, "ReducerOptions", 2, KeepDims=True)
        return self.cast(made, "int32")

    # -- float32 -----------------------------------------------------------------------------

    def near_quotient(
        self,
        high: Int32Value[int],
        bits: int,
        low: Int32Value[int] | None,
        divisor: Int32Value[int],
    ) -> int:
        """The product with the inverse of the divisor."""
        power, below = self._float(np.ldexp(1.0, bits)), self.cast(divisor.held, "float32")
        value = self.cast(high.held, "float32")
        if low is None:
            inverse = self._on_floats("DIV", power, below)
            return self.cast(self._on_floats("MUL", value, inverse), "int32")
        value = self._on_floats("MUL", value, power)
        value = self._on_floats("ADD", value, self.cast(low.held, "float32"))
        return self.cast(self._on_floats("DIV", value, below), "int32")

    def near_root(self, high: Int32Value[int], low: Int32Value[int]) -> int:
        power = self._float(np.ldexp(1.0, HALF_BITS))
        value = self._on_floats("MUL", self.cast(high.held, "float32"), power)
        value = self._on_floats("ADD", value, self.cast(low.held, "float32"))
        root = self._tensor("float32", self.shapes[value])
        return self.cast(self.model.operator("SQRT", [value], root), "int32")

    def _on_floats(self, op: str, a: int, b: int) -> int:
        options = f"{op.capitalize()}Options"
        return self._operator(op, [a, b], "float32", options, 1)

    def _float(self, number: float) -> int:
        return self._constant(np.array([[number]], np.float32))

    # -- tensors -----------------------------------------------------------------------------

    def cast(self, value: int, dtype: str) -> int:
        """Another type; floats are truncated."""
        made = self._tensor(dtype, self.shapes[value])
        return self.model.operator("CAST", [value], made)

    def codes(self, name: str, value: int) -> Int32Value[int]:
        """A matrix of stored codes."""
        tensor, zero = self.writer.tensors[name], self.writer.zero(name)
        held = Int32Value(self.cast(value, "int32"), tensor.low + zero, tensor.high + zero)
        return self.plus(held, -zero)

    def matrix(self, name: str, value: int) -> int:
        """Stored codes as a matrix: one row for each index of the axes before the last one."""
        shape = matrix_of(self.writer.tensors[name].shape)
        if len(self.writer.tensors[name].shape) != len(shape):
            value = self.writer.reshaped(value, shape, name, f"{self.node}/rows")
        self.shapes[value] = shape
        return value

    def stored(self, name: str, value: Int32Value[int]) -> int:
        """A matrix of codes as a tensor of the program."""
        shape, zero = self.writer.tensors[name].shape, self.writer.zero(name)
        held = self.plus(value, zero).held
        flat = len(shape) == len(self.shapes[held])
        made = self.writer.add_tensor(name, None if flat else f"{name}/rows", self.shapes[held])
        self.model.operator("CAST", [held], made)
        return made if flat else self.writer.reshaped(made, shape, name, name)

    def _operator(
        self, op: str, inputs: Sequence[int], dtype: str, options: str, version: int
    ) -> int:
        shape = np.broadcast_shapes(*(self.shapes[value] for value in inputs))
        return self.model.operator(op, inputs, self._tensor(dtype, shape), options, version)

    def _constant(self, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> int:
        made = self.model.constant(f"{self.node}/number", array)
        self.shapes[made] = array.shape
        return made

    def _tensor(self, dtype: str, shape: Sequence[int]) -> int:
        made = self.model.tensor(f"{self.node}/{dtype}", shape, dtype)
        self.shapes[made] = tuple(shape)
        return made


def matrix_of(shape: Sequence[int]) -> tuple[int, int]:
    """The rows and the columns of a tensor."""
    return int(np.prod(shape[:-1], dtype=int)), shape[-1]


def write_softmax(writer: TensorWriter, step: Step, value: int) -> int:
    """A softmax of the program. value: the number of its input."""
    (x, table), ops = step.inputs, TfliteInt32(writer, step.output)
    held = ops.matrix(x, value)
    codes = ops.codes(x, held)
    largest = ops.codes(x, _largest(writer, ops, x, held))
    entries, count = writer.constant_codes(table), writer.tensors[x].shape[-1]
    attrs = step.attrs_as(SoftmaxProgramAttrs)
    found = Int32Rows(ops).softmax(codes, largest, entries, count, attrs)
    return ops.stored(step.output, found)


def write_standardize(writer: TensorWriter, step: Step, value: int) -> int:
    """The integer part of a layer norm. value: the number of its input."""
    (x,), ops = step.inputs, TfliteInt32(writer, step.output)
    codes, count = ops.codes(x, ops.matrix(x, value)), writer.tensors[x].shape[-1]
    limit = step.definition.reach(step.attrs, writer.program.operands(step)).high
    attrs = step.attrs_as(StandardizeAttrs)
    found = Int32Rows(ops).standardize(codes, count, attrs, limit)
    tensor = writer.tensors[step.output]
    return ops.stored(step.output, ops.within(found, tensor.low, tensor.high))


def _largest(writer: TensorWriter, ops: TfliteInt32, x: str, value: int) -> int:
    """The largest stored code of each row: TFLM has REDUCE_MAX for int8 only."""
    rows, count = ops.shapes[value]
    name, model = f"{ops.node}/largest", writer.model
    made = writer.add_tensor(x, name, (rows, 1))
    ops.shapes[made] = (rows, 1)
    if not writer.arithmetic.gathers_bytes_only:
        axes = model.constant(f"{ops.node}/axis", np.array([1], np.int32))
        return model.operator("REDUCE_MAX", [value, axes], made, "ReducerOptions", 2, KeepDims=True)
    image = writer.reshaped(value, (rows, count, 1, 1), x, f"{ops.node}/image")
    pooled = writer.add_tensor(x, f"{name}/image", (rows, 1, 1, 1))
    fields = {"Padding": model.enum("Padding", "VALID"), "StrideH": 1, "StrideW": 1}
    model.operator(
        "MAX_POOL_2D", [image], pooled, "Pool2DOptions", 2,
        FilterHeight=count, FilterWidth=1, **fields,
    )  # fmt: skip
    sizes = np.asarray((rows, 1), np.int32)
    held = model.constant(f"{name}/shape", sizes)
    return model.operator("RESHAPE", [pooled, held], made, "ReshapeOptions", NewShape=sizes)
