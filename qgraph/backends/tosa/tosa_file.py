"""TOSA flatbuffers: ops, attributes and tensors of the published schema, and how they are written.

The numbers follow `tosa.fbs` of the TOSA serialization library (schema of TOSA 1.0), in which every
op has one table of attributes, with the number of the op. Only what programs need is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType

import numpy as np

from qgraph.foreign import FlatObject
from qgraph.ir.types import Array

IDENTIFIER = b"TOSA"
VERSION = (1, 0, 0, False)  # major, minor, patch, draft
ALIGNMENT = 8  # of data


class TosaType(IntEnum):
    """Types of tensors."""

    INT8 = 3
    INT16 = 4
    INT32 = 5
    SHAPE = 10


NUMPY_TYPES: Mapping[TosaType, str] = MappingProxyType(
    {
        TosaType.INT8: "<i1",
        TosaType.INT16: "<i2",
        TosaType.INT32: "<i4",
        TosaType.SHAPE: "<i8",
    }
)


class TosaRounding(IntEnum):
    """Roundings of RESCALE."""

    SINGLE_ROUND = 1
    DOUBLE_ROUND = 3


class TosaOp(IntEnum):
    """Ops, by their numbers in the schema."""

    CONV2D = 3
    DEPTHWISE_CONV2D = 5
    MATMUL = 7
    MAX_POOL2D = 8
    CLAMP = 11
    ADD = 15
    ARITHMETIC_RIGHT_SHIFT = 16
    BITWISE_AND = 17
    INTDIV = 20
    LOGICAL_LEFT_SHIFT = 22
    MAXIMUM = 26
    MINIMUM = 27
    MUL = 28
    SUB = 30
    TABLE = 31
    ABS = 32
    CLZ = 35
    REDUCE_MAX = 51
    REDUCE_SUM = 54
    CONCAT = 55
    PAD = 56
    RESHAPE = 57
    REVERSE = 58
    SLICE = 59
    TILE = 60
    TRANSPOSE = 61
    GATHER = 62
    RESCALE = 66
    CONST = 67
    IDENTITY = 68
    CONST_SHAPE = 75


AttributeValue = bool | int | bytes | Sequence[int]
_CONV = ("pad", "stride", "dilation", "local_bound", "acc_type")
# Attributes of ops, in the order of the schema. Those that are left out have the value 0.
ATTRIBUTES: Mapping[TosaOp, tuple[str, ...]] = MappingProxyType(
    {
        TosaOp.CONV2D: _CONV,
        TosaOp.DEPTHWISE_CONV2D: _CONV,
        TosaOp.MAX_POOL2D: ("kernel", "stride", "pad", "nan_mode"),
        TosaOp.CLAMP: ("min_val", "max_val", "nan_mode"),
        TosaOp.ARITHMETIC_RIGHT_SHIFT: ("round",),
        TosaOp.MAXIMUM: ("nan_mode",),
        TosaOp.MINIMUM: ("nan_mode",),
        TosaOp.REDUCE_MAX: ("axis", "nan_mode"),
        TosaOp.REDUCE_SUM: ("axis",),
        TosaOp.CONCAT: ("axis",),
        TosaOp.REVERSE: ("axis",),
        TosaOp.TRANSPOSE: ("perms",),
        TosaOp.RESCALE: (
            "scale32",
            "rounding_mode",
            "per_channel",
            "input_unsigned",
            "output_unsigned",
        ),
    }
)


@dataclass(frozen=True)
class TosaTensor:
    """A tensor, or a constant shape; `data` are the numbers of a constant."""

    name: str
    dtype: TosaType
    shape: tuple[int, ...]
    data: Array | None = None


@dataclass(frozen=True)
class TosaOperator:
    """One op, with the names of its tensors and its attributes by name."""

    op: TosaOp
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True)
class TosaNetwork:
    """The content of a file: one region with one block."""

    tensors: Sequence[TosaTensor]
    operators: Sequence[TosaOperator]
    inputs: Sequence[str]
    outputs: Sequence[str]

    def serialized(self) -> bytes:
        """The bytes of a `.tosa` file."""
        import flatbuffers  # comes with TensorFlow

        return _FileWriter(flatbuffers.Builder(1 << 16)).file(self)


class _FileWriter:
    """Writes tables with a builder of `flatbuffers`; positions are those of the builder."""

    def __init__(self, builder: FlatObject) -> None:
        self.builder = builder

    def file(self, network: TosaNetwork) -> bytes:
        tensors = [t for t in network.tensors if t.dtype != TosaType.SHAPE]
        shapes = [t for t in network.tensors if t.dtype == TosaType.SHAPE]
        block = self.table(
            [
                self.text("main"),
                self.vector([self.operator(op) for op in network.operators]),
                self.vector([self.tensor(t) for t in tensors]),
                self.vector([self.text(name) for name in network.inputs]),
                self.vector([self.text(name) for name in network.outputs]),
                self.vector([self.shape(t) for t in shapes]),
            ]
        )
        region = self.table([self.text("main"), self.vector([block])])
        graph = self.table([self.version(), self.vector([region])])
        self.builder.Finish(graph, file_identifier=IDENTIFIER)
        return bytes(self.builder.Output())

    def tensor(self, tensor: TosaTensor) -> int:
        name, shape = self.text(tensor.name), self.numbers(tensor.shape)
        data = self.data(tensor)
        self.builder.StartObject(14)
        self.builder.PrependUOffsetTRelativeSlot(0, name, 0)
        self.builder.PrependUOffsetTRelativeSlot(1, shape, 0)
        self.builder.PrependUint32Slot(2, tensor.dtype, 0)
        self.builder.PrependUOffsetTRelativeSlot(3, data, 0)
        return self.end()

    def shape(self, tensor: TosaTensor) -> int:
        name, data = self.text(tensor.name), self.data(tensor)
        self.builder.StartObject(3)
        self.builder.PrependUOffsetTRelativeSlot(0, name, 0)
        self.builder.PrependUint32Slot(1, tensor.shape[0], 0)
        self.builder.PrependUOffsetTRelativeSlot(2, data, 0)
        return self.end()

    def operator(self, operator: TosaOperator) -> int:
        attributes = self.attributes(operator)
        inputs = self.vector([self.text(name) for name in operator.inputs])
        outputs = self.vector([self.text(operator.output)])
        self.builder.StartObject(6)
        self.builder.PrependUint32Slot(0, operator.op, 0)
        self.builder.PrependUint8Slot(1, operator.op, 0)
        self.builder.PrependUOffsetTRelativeSlot(2, attributes, 0)
        self.builder.PrependUOffsetTRelativeSlot(3, inputs, 0)
        self.builder.PrependUOffsetTRelativeSlot(4, outputs, 0)
        return self.end()

    def attributes(self, operator: TosaOperator) -> int:
        names, given = ATTRIBUTES.get(operator.op, ()), operator.attributes
        assert given.keys() <= {*names}
        held = {}
        for name in names:
            value = given.get(name, 0)
            match value:
                case bytes():
                    held[name] = self.block(value)
                case bool() | int():
                    held[name] = value
                case _:
                    held[name] = self.numbers(value)
        self.builder.StartObject(len(names))
        for slot, name in enumerate(names):
            value = given.get(name, 0)
            if isinstance(value, bool):
                self.builder.PrependBoolSlot(slot, value, False)
            elif isinstance(value, int):
                self.builder.PrependUint32Slot(slot, value, 0)
            else:
                self.builder.PrependUOffsetTRelativeSlot(slot, held[name], 0)
        return self.end()

    def version(self) -> int:
        major, minor, patch, draft = VERSION
        self.builder.StartObject(4)
        for slot, number in enumerate((major, minor, patch)):
            self.builder.PrependInt32Slot(slot, number, -1)
        self.builder.PrependBoolSlot(3, draft, True)
        return self.end()

    def table(self, positions: Sequence[int]) -> int:
        """A table whose fields all lie outside of it."""
        self.builder.StartObject(len(positions))
        for slot, position in enumerate(positions):
            self.builder.PrependUOffsetTRelativeSlot(slot, position, 0)
        return self.end()

    def text(self, text: str) -> int:
        position: int = self.builder.CreateSharedString(text)
        return position

    def vector(self, positions: Sequence[int]) -> int:
        self.builder.StartVector(4, len(positions), 4)
        for position in reversed(positions):
            self.builder.PrependUOffsetTRelative(position)
        return self._vector_end()

    def numbers(self, numbers: Iterable[int]) -> int:
        array = np.array([*numbers], "<i4")
        return self._raw(array.tobytes(), 4, 4)

    def block(self, data: bytes) -> int:
        return self._raw(data, 1, ALIGNMENT)

    def data(self, tensor: TosaTensor) -> int:
        """The numbers of a constant; 0 for other tensors."""
        if tensor.data is None:
            return 0
        held = np.asarray(tensor.data).astype(NUMPY_TYPES[tensor.dtype]).tobytes()
        return self.block(held)

    def end(self) -> int:
        position: int = self.builder.EndObject()
        return position

    def _raw(self, data: bytes, size: int, alignment: int) -> int:
        self.builder.StartVector(size, len(data) // size, alignment)
        self.builder.head -= len(data)
        start = int(self.builder.head)
        self.builder.Bytes[start : start + len(data)] = data
        return self._vector_end()

    def _vector_end(self) -> int:
        position: int = self.builder.EndVector()
        return position
