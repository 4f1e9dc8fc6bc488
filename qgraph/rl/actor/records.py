"""The records of a block, and how attributes lie in them; fused_ops/actor/format.h has the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from qgraph.ops.attributes import Attributes, attributes_of, declarations
from qgraph.rl.actor.ops import ACTIVATIONS, ActorOp

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
        ("checksum", "<u8"),  # of all 32-bit words, with 0 in this place
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
    """How an attribute lies in a record of `STEP`, in the column of its name."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _pair(found: Any) -> tuple[int, int]:
    first, second = found
    return int(first), int(second)


# By attribute; tests/rl/actor/test_ops.py names those that are missing.
COLUMNS: Mapping[str, Column] = MappingProxyType(
    {
        "activation": Column(ACTIVATIONS.index, lambda found: ACTIVATIONS[found]),
        "alpha": Column(lambda value: value or 0.0, float),
        "epsilon": Column(float, float),
        "strides": Column(tuple, _pair),
        "ksize": Column(tuple, _pair),
        "pads": Column(
            lambda pads: sum(pads, ()), lambda found: (_pair(found[:2]), _pair(found[2:]))
        ),
    }
)


def read_attributes(op: ActorOp[Any], row: Any) -> Attributes:
    """The attributes in a record of `STEP`. Raises GraphError."""
    names = (declared.name for declared in declarations(op.attributes))
    attrs: Attributes = attributes_of(
        op.attributes, {name: COLUMNS[name].read(row[name]) for name in names}
    )
    return attrs
