"""Softmax and layer norm as int32 ops of TOSA; codes keep their axes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.backends.int32_rows import Int32Rows
from qgraph.backends.int32_values import INT32_MAX, Int32Op, Int32Value, Int32Writer
from qgraph.backends.tosa.elementwise import gathered
from qgraph.backends.tosa.emission import TosaEmission
from qgraph.backends.tosa.graph_builder import WIDE
from qgraph.backends.tosa.requantize import NAN_MODE
from qgraph.backends.tosa.tosa_file import AttributeValue, TosaOp, TosaType
from qgraph.ir.types import Codes
from qgraph.program import Step
from qgraph.program.ops import SoftmaxProgramAttrs, StandardizeAttrs

OPS: Mapping[Int32Op, TosaOp] = {
    Int32Op.ADD: TosaOp.ADD,
    Int32Op.SUBTRACT: TosaOp.SUB,
    Int32Op.MULTIPLY: TosaOp.MUL,
    Int32Op.DIVIDE: TosaOp.INTDIV,
    Int32Op.MAXIMUM: TosaOp.MAXIMUM,
    Int32Op.MINIMUM: TosaOp.MINIMUM,
}
ATTRIBUTES: Mapping[TosaOp, Mapping[str, AttributeValue]] = {
    TosaOp.MAXIMUM: {"nan_mode": NAN_MODE},
    TosaOp.MINIMUM: {"nan_mode": NAN_MODE},
    TosaOp.ARITHMETIC_RIGHT_SHIFT: {"round": False},
}
WORD = 32  # bits
DIVISOR_BITS = 15  # of divisors that `near_quotient` keeps
HALF_BITS = 26  # of squares, in `near_root`
NEWTON_STEPS = 4  # from a power of two to a root of 13 bits


class TosaInt32(Int32Writer[str]):
    """Ops on int32 values of one rank."""

    largest_row_sum = INT32_MAX

    def __init__(self, emission: TosaEmission, node: str) -> None:
        super().__init__(node)
        self.model, self.rank = emission.model, len(emission.shape(node))

    def write(self, op: Int32Op, a: str, b: str) -> str:
        return self._binary(OPS[op], a, b)

    def write_number(self, number: int) -> str:
        shape = (1,) * self.rank
        return self.model.constant(np.full(shape, number), TosaType.INT32, f"{self.node}/number")

    def write_entries(self, table: Codes, index: str) -> str:
        return gathered(self.model, table, index, f"{self.node}/entries")

    def write_row_sum(self, x: str) -> str:
        return self._reduced(TosaOp.REDUCE_SUM, x)

    def largest(self, x: str) -> str:
        return self._reduced(TosaOp.REDUCE_MAX, x, nan_mode=NAN_MODE)

    def near_quotient(
        self,
        high: Int32Value[str],
        bits: int,
        low: Int32Value[str] | None,
        divisor: Int32Value[str],
    ) -> str:
        """Both sides are shifted until the divisor has 15 bits."""
        down = self._above_0(self._minus(WORD - DIVISOR_BITS, self._leading_zeros(divisor.held)))
        left, right = (
            self._above_0(self._minus(bits, down)),
            self._above_0(self._less(down, bits)),
        )
        left = self._binary(TosaOp.MINIMUM, left, self.write_number(WORD - 1))
        value = self._binary(TosaOp.LOGICAL_LEFT_SHIFT, high.held, left)
        value = self._right(value, right)
        if low is not None:
            value = self._binary(TosaOp.ADD, value, self._right(low.held, down))
        return self._binary(TosaOp.INTDIV, value, self._right(divisor.held, down))

    def near_root(self, high: Int32Value[str], low: Int32Value[str]) -> str:
        """Newton's steps on the highest 26 bits, moved by an even number of bits."""
        free = self._less(self._leading_zeros(high.held), WORD - HALF_BITS)
        moved = self._binary(TosaOp.BITWISE_AND, free, self.write_number(-2))
        square = self._binary(TosaOp.LOGICAL_LEFT_SHIFT, high.held, moved)
        rest = self._right(low.held, self._minus(HALF_BITS, moved))
        square = self._binary(TosaOp.ADD, square, rest)
        square = self._binary(TosaOp.MAXIMUM, square, self.write_number(1))
        half = self._right(self._minus(WORD + 1, self._leading_zeros(square)), self.write_number(1))
        root = self._binary(TosaOp.LOGICAL_LEFT_SHIFT, self.write_number(1), half)
        for _ in range(NEWTON_STEPS):
            other = self._binary(TosaOp.INTDIV, square, root)
            root = self._right(self._binary(TosaOp.ADD, root, other), self.write_number(1))
        back = self._minus(HALF_BITS // 2, self._right(moved, self.write_number(1)))
        return self._binary(TosaOp.LOGICAL_LEFT_SHIFT, root, back)

    # -- ops ---------------------------------------------------------------------------------

    def _binary(self, op: TosaOp, a: str, b: str) -> str:
        return self.model.binary(op, a, b, f"{self.node}/{op.name}", **ATTRIBUTES.get(op, {}))

    def _minus(self, number: int, value: str) -> str:
        return self._binary(TosaOp.SUB, self.write_number(number), value)

    def _less(self, value: str, number: int) -> str:
        return self._binary(TosaOp.SUB, value, self.write_number(number))

    def _above_0(self, value: str) -> str:
        return self._binary(TosaOp.MAXIMUM, value, self.write_number(0))

    def _right(self, value: str, bits: str) -> str:
        return self._binary(TosaOp.ARITHMETIC_RIGHT_SHIFT, value, bits)

    def _leading_zeros(self, value: str) -> str:
        shape = self.model.shape(value)
        return self.model.add(TosaOp.CLZ, [value], f"{self.node}/CLZ", TosaType.INT32, shape)

    def _reduced(self, op: TosaOp, x: str, **attributes: AttributeValue) -> str:
        *rows, _ = self.model.shape(x)
        stem, axis = f"{self.node}/{op.name}", self.rank - 1
        return self.model.add(op, [x], stem, TosaType.INT32, (*rows, 1), axis=axis, **attributes)


def softmax(emission: TosaEmission, step: Step) -> None:
    (x, table), ops = step.inputs, TosaInt32(emission, step.output)
    tensor, value = emission.tensors[x], emission.get(x, WIDE)
    codes = Int32Value(value, tensor.low, tensor.high)
    most = Int32Value(ops.largest(value), tensor.low, tensor.high)
    entries = np.asarray(emission.program.constants[table], np.int64)
    attrs = step.attrs_as(SoftmaxProgramAttrs)
    found = Int32Rows(ops).softmax(codes, most, entries, tensor.shape[-1], attrs)
    emission.put(step.output, found.held, WIDE)


def standardize(emission: TosaEmission, step: Step) -> None:
    (x,), ops = step.inputs, TosaInt32(emission, step.output)
    tensor = emission.tensors[x]
    codes = Int32Value(emission.get(x, WIDE), tensor.low, tensor.high)
    limit = step.definition.reach(step.attrs, emission.program.operands(step)).high
    attrs = step.attrs_as(StandardizeAttrs)
    found = Int32Rows(ops).standardize(codes, tensor.shape[-1], attrs, limit)
    emission.put(step.output, found.held, WIDE)
