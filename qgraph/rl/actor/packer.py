"""Packing: from a learner's float32 weights to a block, straight from where they lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qgraph import kernels
from qgraph.errors import TrainingError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor.block import as_bytes, plain_checksum
from qgraph.rl.actor.layout import Kernel, ceil, layout
from qgraph.rl.actor.plain import quantize_kernel, to_panels
from qgraph.rl.actor.program import ActorProgram, Weights
from qgraph.rl.actor.records import ALIGNMENT, HEADER, MAGIC

FEW_BITS, MORE_BITS = 8, 16  # of layers, and of the first and the last beside them


def end_bits(
    program: ActorProgram, bits: int, first: int | None = None, last: int | None = None
) -> tuple[int | None, int | None]:
    """The bits of the first and the last layer: those given, else defaults; None: as the others.

    With 8 bits or fewer the last has 16: actions hang on small differences of what comes out. So
    has the first where observations are vectors: features of different size would share one range.
    """
    if bits <= FEW_BITS:
        vectors = len(program.shape) == 1
        first = MORE_BITS if first is None and vectors else first
        last = MORE_BITS if last is None else last
    return first, last


class Packer:
    """Packs the weights of one program, again and again.

    bits of the kernels: 32 (float32), 16 (float16), 8 to 5 (stored as int8) or 4 to 2 (int4, two
    in a byte); those of the first and of the last may be others. Integers have a scale for each
    output channel, are symmetric and saturate. Raises UsageError for other bits, UnsupportedError
    for a program that no block holds.
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
        """Bytes of a block, whatever the weights are."""
        return self.layout.size

    def pack(
        self,
        weights: Weights,
        version: int = 0,
        out: Any = None,
        arrived: Callable[[str], object] = str,
    ) -> Array:
        """The block, uint8 [size]; in `out` where that is given (such as shared memory).

        arrived: called with the name of each weight before it is read, to wait for it.

        Raises GraphError for weights that are missing or of another shape, TrainingError for
        weights that are not finite; `out` is no block then.
        """
        self.program.check(weights)
        block = self.room() if out is None else as_bytes(out)
        if len(block) != self.size or not block.flags.writeable:
            raise UsageError(f"a block needs {self.size} bytes that can be written")
        tables = np.frombuffer(self.layout.tables, np.uint8)
        block[: len(tables)] = tables
        header = block[: HEADER.itemsize].view(HEADER)
        header["magic"] = b""  # until all is there
        header["version"] = version
        _pack(self, weights, block, arrived)
        return block

    def room(self) -> Array:
        """Zeros for a block, at a multiple of 64."""
        found = np.zeros(self.size + ALIGNMENT, np.uint8)
        begin = -found.ctypes.data % ALIGNMENT
        return found[begin : begin + self.size]


def _pack(packer: Packer, weights: Weights, block: Array, arrived: Callable[[str], object]) -> None:
    native, engine = kernels.native_actor(), kernels.native_engine()
    if native is None or engine is None or not packer.program.weight_shapes:
        return pack_plain(packer, weights, block, arrived)
    level = engine.best_level()
    checksum = 0
    for i, name in enumerate(packer.program.weight_shapes):
        arrived(name)
        found = native.pack(block, i, np.ascontiguousarray(weights[name], np.float32), level)
        if found is None:
            raise not_finite(name)
        checksum += found
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
    found = np.ascontiguousarray(values).ravel().view(np.uint8)
    block[at : at + ceil(found.size, ALIGNMENT)] = 0
    block[at : at + found.size] = found


def not_finite(name: str) -> TrainingError:
    return TrainingError(
        "holds NaN or infinity, so that nobody can act by it",
        node=name,
        hint="go back to the last checkpoint, and lower the learning rate",
    )
