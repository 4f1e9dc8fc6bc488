"""Packing: a learner's float32 weights become a block, without a copy between."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qgraph import kernels
from qgraph.errors import TrainingError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor.block import BlockBytes, as_bytes, plain_checksum
from qgraph.rl.actor.layout import Kernel, ceil, layout
from qgraph.rl.actor.plain import quantize_kernel, to_panels
from qgraph.rl.actor.program import ActorProgram, Weights
from qgraph.rl.actor.records import ALIGNMENT, HEADER, MAGIC

FEW_BITS, MORE_BITS = 8, 16  # with 8 bits or fewer, the first and the last layer have 16


def end_bits(
    program: ActorProgram, bits: int, first: int | None = None, last: int | None = None
) -> tuple[int | None, int | None]:
    """Choose the bits of the first and last layers.

    If `bits` is 8 or less, the last layers get 16, because actions depend on small differences of
    their results. The first layers get 16 too if observations are vectors, because features of
    different size would share one range.

    Args:
        program: The program.
        bits: Bits of the other layers.
        first: Bits of the first layers; None chooses them.
        last: Bits of the last layers; None chooses them.

    Returns:
        Bits of the first and of the last layers; None where they equal `bits`.

    Examples:
        `program` is that of the example of `ActorProgram`.

        >>> from qgraph.rl.actor import end_bits
        >>> end_bits(program, 8), end_bits(program, 32)
        ((16, 16), (None, None))
    """
    if bits <= FEW_BITS:
        vectors = len(program.shape) == 1
        first = MORE_BITS if first is None and vectors else first
        last = MORE_BITS if last is None else last
    return first, last


class Packer:
    """Packs weights of one program into blocks.

    Integer codes are symmetric, saturate, and have one scale per output channel.

    Args:
        program: The program.
        bits: Bits of the kernels: 32 (float32), 16 (float16), 8 to 5 (stored as int8) or 4 to 2
            (stored as int4, two codes per byte).
        first_bits: Bits of the first layers, if they differ.
        last_bits: Bits of the last layers, if they differ.

    Attributes:
        program: The program.
        layout: Offsets and bits of all weights in a block.

    Raises:
        UsageError: The bits are not supported.
        UnsupportedError: A block cannot hold the program.

    Examples:
        `program` and `weights` are those of the example of `ActorProgram`.

        >>> from qgraph.rl.actor import Packer
        >>> packer = Packer(program, bits=4, last_bits=8)
        >>> len(packer.pack(weights)) == packer.size
        True
    """

    def __init__(
        self,
        program: ActorProgram,
        bits: int = 8,
        first_bits: int | None = None,
        last_bits: int | None = None,
    ) -> None:
        self.program = program
        self.layout = layout(program, bits, first_bits, last_bits)

    @property
    def size(self) -> int:
        """Size of a block in bytes. It does not depend on the weights."""
        return self.layout.size

    def pack(
        self,
        weights: Weights,
        version: int = 0,
        out: BlockBytes | None = None,
        arrived: Callable[[str], object] = str,
    ) -> Array:
        """Pack weights into a block.

        Args:
            weights: Arrays by name; they are converted to float32.
            version: Version to write into the block.
            out: Memory to write to, such as shared memory: exactly `size` bytes. None allocates
                memory.
            arrived: Called with the name of each weight before it is read, for example to wait for
                it.

        Returns:
            The block, uint8 [size]; `out` if it was given.

        Raises:
            GraphError: A weight is missing or has another shape.
            TrainingError: A weight is not finite. `out` does not contain a valid block then.
            UsageError: `out` has another size or cannot be written.
        """
        self.program.check(weights)
        block = self.allocate() if out is None else as_bytes(out)
        if len(block) != self.size or not block.flags.writeable:
            raise UsageError(f"`out` must be {self.size} writable bytes, not {len(block)}")
        tables = np.frombuffer(self.layout.tables, np.uint8)
        block[: len(tables)] = tables
        header = block[: HEADER.itemsize].view(HEADER)
        header["magic"] = b""  # not valid until it is complete
        header["version"] = version
        _pack(self, weights, block, arrived)
        return block

    def allocate(self) -> Array:
        """Allocate memory for a block.

        Returns:
            Zeros, uint8 [size], at a multiple of 64.
        """
        memory = np.zeros(self.size + ALIGNMENT, np.uint8)
        begin = -memory.ctypes.data % ALIGNMENT
        return memory[begin : begin + self.size]


def _pack(packer: Packer, weights: Weights, block: Array, arrived: Callable[[str], object]) -> None:
    native, engine = kernels.native_actor(), kernels.native_engine()
    if native is None or engine is None or not packer.program.weight_shapes:
        return pack_plain(packer, weights, block, arrived)
    level = engine.best_level()
    checksum = 0
    for i, name in enumerate(packer.program.weight_shapes):
        arrived(name)
        part = native.pack(block, i, np.ascontiguousarray(weights[name], np.float32), level)
        if part is None:
            raise not_finite(name)
        checksum += part
    native.seal(block, checksum % 2**64, level)


def pack_plain(
    packer: Packer, weights: Weights, block: Array, arrived: Callable[[str], object] = str
) -> None:
    for name in packer.program.weight_shapes:
        arrived(name)
        values = np.asarray(weights[name], np.float32)
        if not np.isfinite(values).all():
            raise not_finite(name)
        if name in packer.layout.kernels:
            _pack_kernel(packer.layout.kernels[name], values, block)
        else:
            _put(block, packer.layout.vectors[name], values)
    header = block[: HEADER.itemsize].view(HEADER)
    header["magic"] = MAGIC
    header["checksum"] = plain_checksum(block)


def _pack_kernel(kernel: Kernel, values: Array, block: Array) -> None:
    codes = quantize_kernel(kernel, values)
    _put(block, kernel.data, to_panels(kernel, codes.values))
    if codes.scale is not None:
        filled = np.zeros(kernel.channels, np.float32)
        filled[: len(codes.scale)] = codes.scale
        _put(block, kernel.scale, filled)
        sums = np.zeros(kernel.channels, np.int32)
        sums[: len(codes.scale)] = codes.values.sum((0, 1))
        _put(block, kernel.sums, sums)


def _put(block: Array, at: int, values: Array) -> None:
    data = np.ascontiguousarray(values).ravel().view(np.uint8)
    block[at : at + ceil(data.size, ALIGNMENT)] = 0
    block[at : at + data.size] = data


def not_finite(name: str) -> TrainingError:
    return TrainingError(
        "the weight has NaN or infinity",
        node=name,
        hint="go back to the last checkpoint and lower the learning rate",
    )
