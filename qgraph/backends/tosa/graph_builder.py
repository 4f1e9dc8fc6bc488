"""Builds the ops of a TOSA file: unique names, shapes, and constants that are written once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qgraph.backends.tosa.tosa_file import (
    NUMPY_TYPES,
    AttributeValue,
    TosaNetwork,
    TosaOp,
    TosaOperator,
    TosaRounding,
    TosaTensor,
    TosaType,
)
from qgraph.ir.types import Array
from qgraph.names import Namespace

UNIT = 30  # 2^30 is the multiplier of RESCALE: a shift of 30 keeps codes


@dataclass(frozen=True)
class StoredAs:
    """How codes are stored: a type, and the zero point that is added to them."""

    dtype: TosaType
    zero: int = 0

    @property
    def low(self) -> int:
        """The lowest code."""
        return int(np.iinfo(NUMPY_TYPES[self.dtype]).min) - self.zero

    @property
    def high(self) -> int:
        """The highest code."""
        return int(np.iinfo(NUMPY_TYPES[self.dtype]).max) - self.zero

    def numbers(self, codes: npt.ArrayLike) -> Array:
        """The stored numbers of codes."""
        return (np.asarray(codes, np.int64) + self.zero).astype(NUMPY_TYPES[self.dtype])


SIGNED, UNSIGNED = StoredAs(TosaType.INT8), StoredAs(TosaType.INT8, -128)
WIDE = StoredAs(TosaType.INT32)


class TosaGraphBuilder:
    """Collects tensors and ops. Values are names of tensors in the file."""

    def __init__(self) -> None:
        self.names = Namespace()
        self.tensors: dict[str, TosaTensor] = {}
        self.operators: list[TosaOperator] = []
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self._constants: dict[tuple[object, ...], str] = {}

    def network(self) -> TosaNetwork:
        return TosaNetwork([*self.tensors.values()], self.operators, self.inputs, self.outputs)

    def shape(self, value: str) -> tuple[int, ...]:
        return self.tensors[value].shape

    def dtype(self, value: str) -> TosaType:
        return self.tensors[value].dtype

    def input(self, name: str, dtype: TosaType, shape: Sequence[int]) -> str:
        value = self._declared(name, dtype, shape)
        self.inputs.append(value)
        return value

    def output(self, value: str) -> str:
        """Mark a value as an output; one that is an input or an output already is copied."""
        if value in self.outputs or value in self.inputs:
            value = self.add(TosaOp.IDENTITY, [value], value, self.dtype(value), self.shape(value))
        self.outputs.append(value)
        return value

    def add(
        self,
        op: TosaOp,
        inputs: Sequence[str],
        stem: str,
        dtype: TosaType,
        shape: Sequence[int],
        **attributes: AttributeValue,
    ) -> str:
        """An op with a new tensor as its result."""
        value = self._declared(stem, dtype, shape)
        self._append(op, inputs, value, attributes)
        return value

    def constant(self, numbers: npt.ArrayLike, dtype: TosaType, stem: str) -> str:
        """A constant of stored numbers; an array of rank 0 becomes one of rank 1."""
        array = np.atleast_1d(np.asarray(numbers)).astype(NUMPY_TYPES[dtype])
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._declared(stem, dtype, array.shape, array)
            self._append(TosaOp.CONST, (), self._constants[key], {})
        return self._constants[key]

    def sizes(self, numbers: Sequence[int]) -> str:
        """A constant shape: sizes, starts or paddings of moves."""
        array = np.array([*numbers], np.int64)
        key = (TosaType.SHAPE, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._declared("sizes", TosaType.SHAPE, array.shape, array)
            self._constants[key] = name
            self._append(TosaOp.CONST_SHAPE, (), name, {})
        return self._constants[key]

    # -- ops that several lowerings need -----------------------------------------------------

    def reshaped(self, value: str, shape: Sequence[int], stem: str) -> str:
        if self.shape(value) == tuple(shape):
            return value
        inputs = [value, self.sizes(shape)]
        return self.add(TosaOp.RESHAPE, inputs, stem, self.dtype(value), shape)

    def cut(self, value: str, start: Sequence[int], size: Sequence[int], stem: str) -> str:
        if self.shape(value) == tuple(size):
            return value
        inputs = [value, self.sizes(start), self.sizes(size)]
        return self.add(TosaOp.SLICE, inputs, stem, self.dtype(value), size)

    def rescaled(
        self,
        value: str,
        stem: str,
        zero: int,
        to: StoredAs,
        shift: npt.ArrayLike = 0,
        rounding: TosaRounding = TosaRounding.SINGLE_ROUND,
    ) -> str:
        """Codes with the zero point `zero`, shifted to the right and saturated to another type.

        shift: bits, one or one for each index of the last axis; from -28 to 32.
        """
        shifts = np.atleast_1d(np.asarray(shift, np.int64)) + UNIT
        assert shifts.min() >= 2
        assert shifts.max() <= 62
        dtype = self.dtype(value)
        inputs = [
            value,
            self.constant(np.full(shifts.shape, 1 << UNIT), TosaType.INT32, "multiplier"),
            self.constant(shifts, TosaType.INT8, "shift"),
            self.constant(zero, dtype, "zero_point"),
            self.constant(to.zero, to.dtype, "zero_point"),
        ]
        return self.add(
            TosaOp.RESCALE,
            inputs,
            stem,
            to.dtype,
            self.shape(value),
            scale32=True,
            rounding_mode=int(rounding),
            per_channel=shifts.size > 1,
        )

    def binary(self, op: TosaOp, a: str, b: str, stem: str, **attributes: AttributeValue) -> str:
        """An op of two int32 values of one rank, which are broadcast."""
        shape = np.broadcast_shapes(self.shape(a), self.shape(b))
        inputs = [a, b]
        if op is TosaOp.MUL:
            inputs.append(self.constant(0, TosaType.INT8, "shift"))
        return self.add(op, inputs, stem, TosaType.INT32, shape, **attributes)

    def with_number(
        self, op: TosaOp, value: str, number: npt.ArrayLike, stem: str, **attributes: AttributeValue
    ) -> str:
        """An op of an int32 value and a constant: one number, or one for each last index."""
        array = np.asarray(number)
        rank = len(self.shape(value))
        array = array.reshape((*(1,) * (rank - array.ndim), *array.shape))
        other = array if rank else array.reshape(())
        name = self._of_rank(other, stem)
        return self.binary(op, value, name, stem, **attributes)

    def _of_rank(self, array: Array, stem: str) -> str:
        """An int32 constant that keeps rank 0."""
        value = self.constant(array, TosaType.INT32, f"{stem}/number")
        return value if array.ndim else self.reshaped(value, (), f"{stem}/number")

    def _declared(
        self, stem: str, dtype: TosaType, shape: Sequence[int], data: Array | None = None
    ) -> str:
        name = self.names.fresh(stem)
        self.tensors[name] = TosaTensor(name, dtype, tuple(int(s) for s in shape), data)
        return name

    def _append(
        self,
        op: TosaOp,
        inputs: Sequence[str],
        output: str,
        attributes: Mapping[str, AttributeValue],
    ) -> None:
        self.operators.append(TosaOperator(op, tuple(inputs), output, attributes))
