"""An actor: observations in, outputs out, by a block that is used where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np

from qgraph.errors import LoadError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor.block import Block, as_bytes, read_block, same_tables
from qgraph.rl.actor.packer import Packer
from qgraph.rl.actor.plain import PlainActor, read_weights

LEVELS = ("auto", "numpy")


class Actor:
    """Acts by a block until it is given another one.

    block: bytes, such as a view of shared memory; they are kept alive and must not change while
    the actor has them. level: which instructions, one of `LEVELS`; the results are the same bits.
    compute_bits: bits to compute in where they are not those of the block, which are those of the
    broadcast: weights are then unpacked, and packed anew, each time a block comes.

    Raises LoadError for a block that does not hold, UsageError for options that are not.
    """

    def __init__(self, block: Any, level: str = "auto", compute_bits: int | None = None) -> None:
        if level not in LEVELS:
            raise UsageError(f"the level is one of {', '.join(LEVELS)}, not {level}")
        self.level = level
        self.refused = 0  # observations that were not finite
        self._compute_bits = compute_bits
        self._block = self._own(read_block(block))
        self._tables = read_block(block).layout.tables
        self._actor = PlainActor(self._block)

    @property
    def version(self) -> int:
        """That of the block in use."""
        return self._block.version

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one observation."""
        return self._block.shape

    @property
    def outputs(self) -> tuple[str, ...]:
        return self._block.outputs

    def __call__(self, observations: Array) -> Array:
        """The first output, float32 [n, *its shape], of observations [n, *shape].

        Of one observation [*shape] it is [*its shape]. Raises UsageError for observations of
        another shape, or with NaN or infinity in them, which it names.
        """
        return self.run(observations)[self.outputs[0]]

    def run(self, observations: Array) -> dict[str, Array]:
        """Every output by name; else as the call."""
        x = np.ascontiguousarray(observations, np.float32)
        alone = x.shape == self.shape
        if not alone and (x.shape[1:] != self.shape or x.ndim != len(self.shape) + 1):
            raise UsageError(f"observations are [n, *{self.shape}], found {x.shape}")
        x = x.reshape(-1, *self.shape)
        self._check(x)
        found = self._actor.run(x)
        return {name: y[0] if alone else y for name, y in found.items()}

    def switch(self, block: Any, check: str = "checksum") -> None:
        """Go on with another block of the same program and bits.

        check: `checksum` looks at all of it, `header` at its tables alone. Raises LoadError for
        one that does not hold or is of another program; the one in use stays then.
        """
        if check not in ("checksum", "header"):
            raise UsageError(f"check is `checksum` or `header`, not `{check}`")
        found = read_block(block, checksum=check == "checksum")
        if not same_tables(as_bytes(block), self._tables):
            raise LoadError("the block is of another program, or has other bits")
        self._block = self._own(found)
        self._actor = PlainActor(self._block)

    def _own(self, block: Block) -> Block:
        """The block to compute by."""
        if self._compute_bits is None:
            return block
        packer = Packer(block.program, self._compute_bits)
        return read_block(packer.pack(read_weights(block), block.version), checksum=False)

    def _check(self, x: Array) -> None:
        finite = np.isfinite(x)
        if finite.all():
            return
        wrong = np.argwhere(~finite)
        self.refused += len(np.unique(wrong[:, 0]))
        first = tuple(int(i) for i in wrong[0])
        raise UsageError(
            f"{len(wrong)} numbers of the observations are not finite",
            node=f"observations{list(first)} = {x[first]}",
            hint="look at what the environment gives",
        )
