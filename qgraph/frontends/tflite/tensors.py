"""Tensors of a `.tflite` file: types, names and scales of codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qgraph.errors import LoadError, UnsupportedError
from qgraph.frontends.tf.node import parse_ref
from qgraph.ir.types import Array, Shape

DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "FLOAT32": "float32", "FLOAT16": "float16", "FLOAT64": "float64", "INT32": "int32",
        "INT64": "int64", "INT16": "int16", "INT8": "int8", "UINT8": "uint8", "UINT16": "uint16",
        "UINT32": "uint32", "UINT64": "uint64", "BOOL": "bool", "INT4": "int8",
    }
)  # fmt: skip


CODES = ("INT4", "INT8", "UINT8", "INT16", "INT32", "INT64")  # types that may have a scale
PACKED = "INT4"  # two codes in a byte, the first one in its lower half


def dtype_of(kind: str, name: str) -> str:
    """The name of a type of the schema. Raises UnsupportedError for one that is not read."""
    found = DTYPES.get(kind)
    if found is None:
        raise UnsupportedError(f"a tensor of type {kind}", node=name)
    return found


@dataclass(frozen=True)
class LiteScale:
    """Codes q stand for `scales * (q - zeros)`, one pair for all or for each channel."""

    scales: Array
    zeros: Array
    axis: int

    def real(self, codes: Array) -> Array:
        """The numbers that codes stand for, in float32."""
        scales, zeros = self._along(codes)
        values: Array = (codes.astype(np.float64) - zeros) * scales
        with np.errstate(over="ignore"):  # infinities are refused with the node that has them
            return values.astype(np.float32)

    def codes_of(self, values: Array) -> Array:
        """The codes that stand for numbers, as float64."""
        scales, zeros = self._along(values)
        return values.astype(np.float64) / scales + zeros

    def _along(self, codes: Array) -> tuple[Array, Array]:
        """Scales and zero points in the shape in which they act on codes."""
        shape = [1] * codes.ndim
        if self.scales.size > 1:
            if not 0 <= self.axis < codes.ndim or codes.shape[self.axis] != self.scales.size:
                raise LoadError(
                    f"{self.scales.size} scales do not fit shape {list(codes.shape)}, axis "
                    f"{self.axis}"
                )
            shape[self.axis] = self.scales.size
        zeros = np.broadcast_to(self.zeros, self.scales.shape).reshape(shape)
        return self.scales.astype(np.float64).reshape(shape), zeros


@dataclass(frozen=True)
class LiteTensor:
    """One tensor; `dims` is its shape with None for sizes that are open."""

    name: str
    kind: str
    shape: tuple[int, ...]
    dims: Shape
    content: bytes | memoryview
    scale: LiteScale | None
    state: str  # "sparse", "variable" or ""

    @property
    def short(self) -> str:
        """The name without the names of ops that the converter joined, and without `:0`."""
        name, index = parse_ref(self.name.partition(";")[0])
        return name if not index else f"{name}_{index}"

    @property
    def is_constant(self) -> bool:
        return self.state != "variable" and (len(self.content) > 0 or 0 in self.shape)


def same_scale(one: LiteScale | None, other: LiteScale | None) -> bool:
    """Whether codes of both scales stand for the same numbers."""
    if one is None or other is None:
        return one is other
    return np.array_equal(one.scales, other.scales) and np.array_equal(one.zeros, other.zeros)
