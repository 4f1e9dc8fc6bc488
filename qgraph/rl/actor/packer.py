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
    """The bits of the first and of the last layers, with defaults; None if they are `bits`.

    If `bits` is 8 or fewer, the last layers have 16, since actions depend on small differences of
    their results. The first ones have 16 too if observations are vectors, since features of
    different size would share one range.
    """
    if bits <= FEW_BITS:
        vectors = len(program.shape) == 1
        first = MORE_BITS if first is None and vectors else first
        last = MORE_BITS if last is None else last
    return first, last


class Packer:
    """Packs weights of one program, any number of times.

    bits: of the kernels: 32 (float32), 16 (float16), 8 to 5 (stored as int8) or 4 to 2 (int4, two
    in a byte). first_bits, last_bits: of the first and of the last layers, if they differ. Integer
    codes are symmetric, saturate, and have a scale for each output channel. Raises UsageError for
    other bits, UnsupportedError for a program that a block cannot hold.
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
        """Bytes of a block; the same for all weights."""
        return self.layout.size

    def pack(
        self,
        weights: Weights,
        version: int = 0,
        out: BlockBytes | None = None,
        arrived: Callable[[str], object] = str,
    ) -> Array:
        """The block, uint8 [size]; written into `out`, such as shared memory, if it is given.

        arrived: called with the name of each weight before it is read, to wait for it.

        Raises GraphError for weights that are missing or of another shape, TrainingError for
        weights that are not finite; `out` then holds no valid block.
        """
        self.program.check(weights)
        block = self.room() if out is None else as_bytes(out)
        if len(block) != self.size or not block.flags.writeable:
            raise UsageError(f"`out` must be {self.size} writable bytes, not {len(block)}")
        tables = np.frombuffer(self.layout.tables, np.uint8)
        block[: len(tables)] = tables
        header = block[: HEADER.itemsize].view(HEADER)
        header["magic"] = b""  # not valid until it is complete
        header["version"] = version
        _pack(self, weights, block, arrived)
        return block

    def room(self) -> Array:
        """Zeros for a block, at a multiple of 64."""
        room = np.zeros(self.size + ALIGNMENT, np.uint8)
        begin = -room.ctypes.data % ALIGNMENT
        return room[begin : begin + self.size]


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
