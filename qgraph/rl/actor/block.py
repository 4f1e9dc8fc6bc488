"""Reading a block (layout.py describes the format): it is checked in full before it is used."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

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

# The bytes of a block, not checked yet.
BlockBytes: TypeAlias = Array | bytes | bytearray | memoryview | mmap.mmap
PACK_AGAIN = "pack the weights again with this version of qgraph"


@dataclass(frozen=True)
class Block:
    """A block whose tables were read and checked. Its data is read when it is needed.

    Attributes:
        buffer: The bytes of the block, uint8 [size].
        layout: The program, the bits and the offset of each weight.
        version: Version of the weights.

    Examples:
        `program` and `weights` are those of the example of `ActorProgram`.

        >>> from qgraph.rl.actor import Packer, read_block
        >>> block = read_block(Packer(program, bits=8).pack(weights, version=3))
        >>> block.bits, block.version, block.shape, block.outputs
        (8, 3, (4,), ('logits',))
    """

    buffer: Array  # uint8
    layout: Layout
    version: int

    @property
    def program(self) -> ActorProgram:
        """The program of the block."""
        return self.layout.program

    @property
    def bits(self) -> int:
        """Bits of the weights of most layers."""
        return self.layout.bits

    @property
    def size(self) -> int:
        """Size of the block in bytes."""
        return self.layout.size

    @property
    def shape(self) -> Shape:
        """Shape of one observation."""
        return self.program.shape

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.program.outputs

    def array(self, dtype: str, count: int, at: int) -> Array:
        """View a part of the data.

        Args:
            dtype: Type of the numbers, such as `<f4`.
            count: How many numbers.
            at: Offset of the first one, in bytes from the start of the block.

        Returns:
            An array [count], without a copy.
        """
        return np.frombuffer(self.buffer, dtype, count, at)


def read_block(buffer: BlockBytes, checksum: bool = True) -> Block:
    """Read a block and check its magic, format, size, checksum, offsets and shapes.

    Args:
        buffer: The bytes of the block.
        checksum: Whether to check the checksum.

    Returns:
        The block.

    Raises:
        LoadError: The block is damaged.

    Examples:
        `program` and `weights` are those of the example of `ActorProgram`.

        >>> from qgraph.rl.actor import Packer, read_block
        >>> read_block(Packer(program).pack(weights)).program == program
        True
    """
    block = as_bytes(buffer)
    header = _header(block)
    if checksum and checksum_of(block) != int(header["checksum"]):
        raise _wrong_checksum()
    try:
        layout = _read_layout(block, header)
    except (GraphError, UnsupportedError, UsageError, ValueError, IndexError) as error:
        raise LoadError(f"the block is damaged: {error}", hint=PACK_AGAIN) from None
    return Block(block, layout, same_program(block, layout.tables, checksum=False))


def as_bytes(buffer: BlockBytes) -> Array:
    """The bytes as uint8 [size], without a copy. Raises LoadError for another array."""
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    if array.dtype != np.uint8 or array.ndim != 1 or not array.flags.c_contiguous:
        raise LoadError(f"a block is uint8 [size], not {array.dtype} {list(array.shape)}")
    return array


def same_program(block: Array, tables: bytes, checksum: bool = True) -> int:
    """The version of a block of the program with these tables. Raises LoadError."""
    header = block[: HEADER.itemsize].tobytes()
    if not same_tables(block, tables) or len(block) != int.from_bytes(header[24:32], "little"):
        raise LoadError(
            "the block was made for a different program or different bits, or it is damaged"
        )
    if checksum and checksum_of(block) != int.from_bytes(header[16:24], "little"):
        raise _wrong_checksum()
    return int.from_bytes(header[32:40], "little")


def _wrong_checksum() -> LoadError:
    return LoadError("the block is damaged: its checksum is wrong", hint=PACK_AGAIN)


def same_tables(block: Array, tables: bytes) -> bool:
    """Whether the block has the program and the bits of these tables."""
    header = block[: HEADER.itemsize].tobytes()
    blank = header[:16] + bytes(8) + header[24:32] + bytes(8) + header[40:]
    return blank + block[HEADER.itemsize : len(tables)].tobytes() == tables


def at_front(buffer: BlockBytes) -> Array:
    """The block at the front of a buffer that may be longer, cut to the size in its header.

    Other bytes are returned as they are; `read_block` refuses them.
    """
    block = as_bytes(buffer)
    size = int.from_bytes(block[24:32].tobytes(), "little")
    return block[:size] if 0 < size < len(block) else block


def checksum_of(block: Array) -> int:
    native = kernels.native_actor()
    return plain_checksum(block) if native is None else native.checksum(block)


def plain_checksum(block: Array) -> int:
    """The sum of each 32-bit word times an odd number that depends on its place, modulo 2^64.

    It differs if one word has changed, or if two have changed places.
    """
    words = block.view("<u4").astype(np.uint64)
    words[4:6] = 0
    keys = (np.arange(len(words), dtype=np.uint64) * 0x9E3779B2 + 1) & 0xFFFFFFFF
    return int((words * keys).sum(dtype=np.uint64))


def _header(block: Array) -> np.void:
    if len(block) < HEADER.itemsize:
        raise LoadError(f"{len(block)} bytes are too few for a block", hint=PACK_AGAIN)
    header: np.void = block[: HEADER.itemsize].copy().view(HEADER)[0]
    if bytes(header["magic"]) != MAGIC:
        raise LoadError("not an actor block", hint=PACK_AGAIN)
    if header["format"] != FORMAT:
        raise LoadError(f"the block has format {header['format']}, not {FORMAT}", hint=PACK_AGAIN)
    if header["size"] != len(block) or len(block) % ALIGNMENT:
        raise LoadError(f"the block has {len(block)} bytes, not {header['size']}", hint=PACK_AGAIN)
    return header


def _read_layout(block: Array, header: np.void) -> Layout:
    sections = _Sections(block)
    values = sections.take(int(header["values"]), VALUE)
    weights = sections.take(int(header["weights"]), WEIGHT)
    step_rows = sections.take(int(header["steps"]), STEP)
    indices = sections.take(int(header["indices"]), np.dtype("<u4"))
    names = sections.take(int(header["names"]), np.dtype("u1")).tobytes()
    value_names = [_name(row, names) for row in values]
    weight_names = [_name(row, names) for row in weights]
    steps, at = list[ActorStep](), 0
    for row in step_rows:
        inputs = indices[at : at + int(row["inputs"])]
        at += int(row["inputs"])
        steps.append(_read_step(row, [value_names[i] for i in inputs], value_names, weight_names))
    program = ActorProgram(
        _shape(values[0]),
        tuple(steps),
        tuple(value_names[i] for i in indices[at:]),
        {name: _shape(row) for name, row in zip(weight_names, weights, strict=True)},
        value_names[0],
    )
    check_sizes(program)
    bits = {name: int(row["bits"]) for name, row in zip(weight_names, weights, strict=True)}
    for given in (*bits.values(), int(header["bits"])):
        if given not in BITS:
            raise ValueError(f"weights of {given} bits are not supported")
    return Layout(program, bits, int(header["bits"]))


def _read_step(
    row: np.void, inputs: Sequence[str], values: Sequence[str], weights: Sequence[str]
) -> ActorStep:
    op = [*OPS.values()][row["op"]]
    used = tuple(weights[i] for i in row["weights"] if i != NO_WEIGHT)
    return ActorStep(op.name, tuple(inputs), values[row["output"]], used, read_attributes(op, row))


class _Sections:
    """Reads the tables after the header of a block, one by one."""

    def __init__(self, block: Array) -> None:
        self._block, self._at = block, HEADER.itemsize

    def take(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        begin, size = self._at, count * dtype.itemsize
        if size > len(self._block) - begin:
            raise ValueError("it is too short for its tables")
        self._at = ceil(begin + size, ALIGNMENT)
        return self._block[begin : begin + size].copy().view(dtype)


def _name(row: np.void, names: bytes) -> str:
    return names[int(row["name"]) :][: int(row["name_size"])].decode()


def _shape(row: np.void) -> Shape:
    return tuple(int(size) for size in row["shape"][: int(row["rank"])])
