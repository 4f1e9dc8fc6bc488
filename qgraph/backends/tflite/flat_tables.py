"""Tables of a FlatBuffers file, by the published schema of TFLite.

A `FlatTable` names a table of the schema and its fields; `serialized` writes it with the functions
of the package `tflite`, which are generated from the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from qgraph.foreign import FlatObject
from qgraph.ir.types import Array
from qgraph.tflite_schema import IDENTIFIER, schema

ALIGNMENT = 16  # of buffers, which executors read in place

FieldValue: TypeAlias = "bool | int | float | str | bytes | Array | FlatTable | Sequence[FlatTable]"


@dataclass(frozen=True)
class FlatTable:
    """One table: its kind in the schema, and its fields by the schema's names.

    bytes are a vector of bytes; arrays are vectors of their own type: int32, int64 or float32.
    """

    kind: str
    fields: Mapping[str, FieldValue]


def serialized(root: FlatTable) -> bytes:
    """A file whose root is this table."""
    package = schema()
    import flatbuffers

    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(_table(package, builder, root), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def _table(package: FlatObject, builder: FlatObject, table: FlatTable) -> int:
    held = {
        name: value if isinstance(value, int | float) else _offset(package, builder, value)
        for name, value in table.fields.items()
    }
    getattr(package, f"{table.kind}Start")(builder)
    for name, value in held.items():
        getattr(package, f"{table.kind}Add{name}")(builder, value)
    offset: int = getattr(package, f"{table.kind}End")(builder)
    return offset


def _offset(package: FlatObject, builder: FlatObject, value: FieldValue) -> int:
    """The position of a value that lies outside of its table."""
    offset: int
    if isinstance(value, str):
        offset = builder.CreateString(value)
    elif isinstance(value, FlatTable):
        offset = _table(package, builder, value)
    elif isinstance(value, bytes):
        offset = _aligned(builder, value)
    elif isinstance(value, np.ndarray):
        offset = builder.CreateNumpyVector(value)
    else:
        assert not isinstance(value, int | float)
        offsets = [_table(package, builder, one) for one in value]
        builder.StartVector(4, len(offsets), 4)
        for one in reversed(offsets):
            builder.PrependUOffsetTRelative(one)
        offset = builder.EndVector()
    return offset


def _aligned(builder: FlatObject, data: bytes) -> int:
    builder.StartVector(1, len(data), ALIGNMENT)
    builder.head -= len(data)
    start = int(builder.head)
    builder.Bytes[start : start + len(data)] = data
    offset: int = builder.EndVector()
    return offset
