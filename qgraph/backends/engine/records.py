"""The records of a `.qgi` file, field by field; fused_ops/engine/format.h has the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from struct import Struct, calcsize

MAGIC = b"\x89QGI\r\n\x1a\n"
VERSION = 1
ALIGNMENT = 64
MAX_RANK = 8
BATCH_FREE = 1  # a flag

# Types that codes are stored in, by number.
STORAGES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")


class Kind(IntEnum):
    """How a tensor gets its codes, by number."""

    COMPUTED = 0
    CONSTANT = 1
    ENTRY = 2


@dataclass(frozen=True)
class Field:
    """format: as in `struct`, without byte order; `x` for unused zeros."""

    name: str
    format: str
    meaning: str

    @property
    def size(self) -> int:
        return calcsize(f"<{self.format}")

    @property
    def count(self) -> int:
        """The number of its elements."""
        return int(self.format[:-1] or 1)

    @property
    def type(self) -> str:
        """Like `uint32` or `8 x uint32`."""
        if self.format[-1] in "sx":
            return f"{self.size} bytes"
        sizes = {"B": "uint8", "I": "uint32", "Q": "uint64", "q": "int64"}
        times = f"{self.count} x " if self.count > 1 else ""
        return times + sizes[self.format[-1]]


@dataclass(frozen=True)
class Record:
    """Fields in order, little-endian, without gaps."""

    fields: tuple[Field, ...]

    @cached_property
    def struct(self) -> Struct:
        return Struct("<" + "".join(field.format for field in self.fields))

    def offsets(self) -> list[int]:
        """The byte at which each field begins."""
        sizes = [field.size for field in self.fields]
        return [sum(sizes[:i]) for i in range(len(sizes))]


HEADER = Record(
    (
        Field("magic", "8s", "89 51 47 49 0d 0a 1a 0a: `\\x89QGI\\r\\n\\x1a\\n`"),
        Field("version", "I", f"{VERSION}"),
        Field("checksum", "I", "CRC-32 as in zlib, of the whole file with zeros in this field"),
        Field("size", "Q", "bytes of the file"),
        Field("flags", "I", f"{BATCH_FREE} if the batch is free, else 0"),
        Field("tensors", "I", "number of tensors, at most 32768"),
        Field("steps", "I", "number of steps"),
        Field("entries", "I", "number of entries"),
        Field("exits", "I", "number of exits"),
        Field("indices", "I", "count of the section of indices"),
        Field("numbers", "I", "count of the section of numbers"),
        Field("names", "I", "bytes of the section of names"),
        Field("reserved", "8x", "0"),
    )
)
TENSOR = Record(
    (
        Field("name", "I", "start of its name in the section of names"),
        Field("name_size", "I", "bytes of the name, UTF-8; no two tensors have the same name"),
        Field("storage", "B", "the type of its codes"),
        Field("kind", "B", "how it gets its codes"),
        Field("rank", "B", f"number of its dimensions, at most {MAX_RANK}"),
        Field("reserved", "5x", "0"),
        Field("low", "q", "lowest possible code, at least -2^53"),
        Field("high", "q", "highest possible code, at most 2^53"),
        Field("magnitude", "q", "bound of the partial sums of its codes, 0 to 2^53"),
        Field("data", "Q", "for a constant, the position of its codes in the file; else 0"),
        Field("shape", "8I", "its sizes, each at least 1; 0 past its rank"),
    )
)
STEP = Record(
    (
        Field("op", "I", "the number of the op"),
        Field("output", "I", "the index of the tensor that it computes"),
        Field("inputs", "I", "number of its inputs in the section of indices"),
        Field("numbers", "I", "number of its attributes in the section of numbers"),
    )
)
