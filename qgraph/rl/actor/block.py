"""Reading a block (its form is in layout.py): nothing of it is used before all of it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph import kernels
from qgraph.errors import GraphError, LoadError, UnsupportedError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor.layout import BITS, Layout, ceil, check_sizes
from qgraph.rl.actor.ops import OPS, Shape
from qgraph.rl.actor.program import ActorProgram, ActorStep
from qgraph.rl.actor.records import (
    ALIGNMENT,
    FORMAT,
    HEADER,
    MAGIC,
    NO_WEIGHT,
    STEP,
    VALUE,
    WEIGHT,
    read_attributes,
)


@dataclass(frozen=True)
class Block:
    """What a block says; its data is read only where it is asked for."""

    buffer: Array  # uint8
    layout: Layout
    version: int

    @property
    def program(self) -> ActorProgram:
        return self.layout.program

    @property
    def bits(self) -> int:
        return self.layout.bits

    @property
    def size(self) -> int:
        return self.layout.size

    @property
    def shape(self) -> Shape:
        return self.program.shape

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.program.outputs

    def array(self, dtype: str, count: int, at: int) -> Array:
        """Numbers of the data, where they lie."""
        return np.frombuffer(self.buffer, dtype, count, at)


def read_block(buffer: Any, checksum: bool = True) -> Block:
    """A block that is whole: magic, format, size, checksum, every offset and every shape hold.

    buffer: anything with bytes. Raises LoadError; nothing of a block is used before.
    """
    found = as_bytes(buffer)
    header = _header(found)
    if checksum and checksum_of(found) != int(header["checksum"]):
        raise LoadError("the checksum of the block is wrong: it is damaged", hint=ANOTHER)
    try:
        made = _read_layout(found, header)
    except (GraphError, UnsupportedError, UsageError, ValueError, IndexError) as error:
        raise LoadError(f"the block is not what it says: {error}", hint=ANOTHER) from None
    return Block(found, made, same_program(found, made.tables, checksum=False))


ANOTHER = "pack the weights again, by the same version of qgraph"


def as_bytes(buffer: Any) -> Array:
    found = np.asarray(buffer) if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, "u1")
    if found.dtype != np.uint8 or found.ndim != 1 or not found.flags.c_contiguous:
        raise LoadError(f"a block is a row of bytes, not {found.dtype} {found.shape}")
    return found


def same_program(block: Array, tables: bytes, checksum: bool = True) -> int:
    """The version of a block that is whole and has these tables. Raises LoadError."""
    header = block[: HEADER.itemsize].tobytes()
    if not same_tables(block, tables) or len(block) != int.from_bytes(header[24:32], "little"):
        raise LoadError("the block is of another program, has other bits, or is damaged")
    if checksum and checksum_of(block) != int.from_bytes(header[16:24], "little"):
        raise LoadError("the checksum of the block is wrong: it is damaged", hint=ANOTHER)
    return int.from_bytes(header[32:40], "little")


def same_tables(block: Array, tables: bytes) -> bool:
    """Is it of that program, in those bits?"""
    header = block[: HEADER.itemsize].tobytes()
    blank = header[:16] + bytes(8) + header[24:32] + bytes(8) + header[40:]
    return blank + block[HEADER.itemsize : len(tables)].tobytes() == tables


def at_front(buffer: Any) -> Array:
    """The block at the front of a buffer, which may be longer: by the size that its header says.

    What is no block is given back as it is, for `read_block` to refuse.
    """
    found = as_bytes(buffer)
    size = int.from_bytes(found[24:32].tobytes(), "little")
    return found[:size] if 0 < size < len(found) else found


def checksum_of(block: Array) -> int:
    native = kernels.native_actor()
    return plain_checksum(block) if native is None else native.checksum(block)


def plain_checksum(block: Array) -> int:
    """Sum of each 32-bit word times an odd number of its place, modulo 2^64: a changed word
    is always seen, and two that changed places."""
    words = block.view("<u4").astype(np.uint64)
    words[4:6] = 0
    keys = (np.arange(len(words), dtype=np.uint64) * 0x9E3779B2 + 1) & 0xFFFFFFFF
    return int((words * keys).sum(dtype=np.uint64))


def _header(block: Array) -> Any:
    if len(block) < HEADER.itemsize:
        raise LoadError("this is too short for a block", hint=ANOTHER)
    header = block[: HEADER.itemsize].copy().view(HEADER)[0]
    if bytes(header["magic"]) != MAGIC:
        raise LoadError("this is no block of an actor", hint=ANOTHER)
    if header["format"] != FORMAT:
        raise LoadError(f"the block has format {header['format']}, not {FORMAT}", hint=ANOTHER)
    if header["size"] != len(block) or len(block) % ALIGNMENT:
        raise LoadError(f"the block has {len(block)} bytes, not {header['size']}", hint=ANOTHER)
    return header


def _read_layout(block: Array, header: Any) -> Layout:
    sections = _Sections(block)
    values = sections.take(header["values"], VALUE)
    weights = sections.take(header["weights"], WEIGHT)
    steps = sections.take(header["steps"], STEP)
    indices = sections.take(header["indices"], np.dtype("<u4"))
    names = sections.take(header["names"], np.dtype("u1")).tobytes()
    value_names = [_name(row, names) for row in values]
    weight_names = [_name(row, names) for row in weights]
    made, at = [], 0
    for row in steps:
        inputs = indices[at : at + int(row["inputs"])]
        at += int(row["inputs"])
        made.append(_read_step(row, [value_names[i] for i in inputs], value_names, weight_names))
    program = ActorProgram(
        _shape(values[0]),
        tuple(made),
        tuple(value_names[i] for i in indices[at:]),
        {name: _shape(row) for name, row in zip(weight_names, weights, strict=True)},
        value_names[0],
    )
    check_sizes(program)
    bits = {name: int(row["bits"]) for name, row in zip(weight_names, weights, strict=True)}
    for given in (*bits.values(), int(header["bits"])):
        if given not in BITS:
            raise ValueError(f"no weights have {given} bits")
    return Layout(program, bits, int(header["bits"]))


def _read_step(
    row: Any, inputs: Sequence[str], values: Sequence[str], weights: Sequence[str]
) -> ActorStep:
    op = [*OPS.values()][row["op"]]
    used = tuple(weights[i] for i in row["weights"] if i != NO_WEIGHT)
    return ActorStep(op.name, tuple(inputs), values[row["output"]], used, read_attributes(op, row))


class _Sections:
    def __init__(self, block: Array) -> None:
        self._block, self._at = block, HEADER.itemsize

    def take(self, count: Any, dtype: np.dtype[np.generic]) -> Array:
        begin, size = self._at, int(count) * dtype.itemsize
        if size > len(self._block) - begin:
            raise ValueError("it ends within its tables")
        self._at = ceil(begin + size, ALIGNMENT)
        return self._block[begin : begin + size].copy().view(dtype)


def _name(row: Any, names: bytes) -> str:
    return names[int(row["name"]) :][: int(row["name_size"])].decode()


def _shape(row: Any) -> Shape:
    return tuple(int(size) for size in row["shape"][: int(row["rank"])])
