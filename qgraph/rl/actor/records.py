"""The records of a block and the attributes in them; fused_ops/actor/format.h has the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qgraph.ir.types import Array
from qgraph.ops.attributes import Attributes, attributes_of, declarations
from qgraph.rl.actor.ops import ACTIVATIONS, AnyActorOp

MAGIC = b"\x89QGA\r\n\x1a\n"
FORMAT = 1
ALIGNMENT = 64
MAX_RANK = 4
NO_WEIGHT = 0xFFFFFFFF
STORAGES = ("float32", "float16", "int8", "int4")

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("format", "<u4"),
        ("bits", "<u4"),
        ("checksum", "<u8"),  # of all 32-bit words, with 0 in its own place
        ("size", "<u8"),
        ("version", "<u8"),
        ("values", "<u4"),
        ("weights", "<u4"),
        ("steps", "<u4"),
        ("indices", "<u4"),
        ("outputs", "<u4"),
        ("names", "<u4"),
    ]
)
VALUE = np.dtype(
    [
        ("name", "<u4"),
        ("name_size", "<u4"),
        ("rank", "<u4"),
        ("shape", "<u4", 4),
        ("reserved", "<u4"),
    ]
)
WEIGHT = np.dtype(
    [
        ("name", "<u4"),
        ("name_size", "<u4"),
        ("rank", "<u4"),
        ("shape", "<u4", 4),
        ("storage", "<u4"),
        ("bits", "<u4"),
        ("reserved", "<u4"),
        ("data", "<u8"),
        ("scale", "<u8"),
        ("sums", "<u8"),
    ]
)
STEP = np.dtype(
    [
        ("op", "<u4"),
        ("activation", "<u4"),
        ("alpha", "<f4"),
        ("epsilon", "<f4"),
        ("output", "<u4"),
        ("inputs", "<u4"),
        ("weights", "<u4", 2),
        ("strides", "<u4", 2),
        ("pads", "<u4", 4),
        ("ksize", "<u4", 2),
    ]
)


@dataclass(frozen=True)
class Column:
    """How an attribute is stored in a record of `STEP`.

    name: the column; several ops may use one column for different attributes. write: the attribute
    as a number or an array. read: the attribute, from an array of the column's shape; lists stand
    for tuples.
    """

    name: str
    write: Callable[[object], object]
    read: Callable[[Array], object]


def _unchanged(value: object) -> object:
    return value


def _flat(value: object) -> Array:
    return np.array(value).ravel()


def _axes(value: object) -> Array:
    """Numbers from 1 on for up to MAX_RANK axes, then zeros."""
    given = np.array(value)
    return np.pad(given, (0, MAX_RANK - len(given)))


def _read_axes(stored: Array) -> Array:
    return stored[stored > 0]


# By attribute; tests/rl/actor/test_ops.py reports missing ones.
COLUMNS: Mapping[str, Column] = MappingProxyType(
    {
        "activation": Column(
            "activation", ACTIVATIONS.index, lambda stored: ACTIVATIONS[int(stored)]
        ),
        "alpha": Column("alpha", lambda value: value or 0.0, float),
        "epsilon": Column("epsilon", _unchanged, float),
        "strides": Column("strides", _unchanged, np.ndarray.tolist),
        "ksize": Column("ksize", _unchanged, np.ndarray.tolist),
        "pads": Column("pads", _flat, lambda stored: stored.reshape(2, 2).tolist()),
        "columns": Column("ksize", _unchanged, np.ndarray.tolist),
        "shape": Column("pads", _axes, lambda stored: _read_axes(stored).tolist()),
        "perm": Column(
            "pads",
            lambda value: _axes(np.array(value) + 1),
            lambda stored: (_read_axes(stored).astype(np.int64) - 1).tolist(),
        ),
    }
)


def read_attributes(op: AnyActorOp, row: np.void) -> Attributes:
    """The attributes in a record of `STEP`. Raises GraphError, IndexError."""
    names = (declared.name for declared in declarations(op.attributes))
    attrs: Attributes = attributes_of(
        op.attributes,
        {name: COLUMNS[name].read(np.asarray(row[COLUMNS[name].name])) for name in names},
    )
    return attrs
