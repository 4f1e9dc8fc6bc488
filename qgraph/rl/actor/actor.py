"""The actor: it runs a block in place, from observations to outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qgraph import kernels
from qgraph.choices import Level, chosen
from qgraph.errors import LoadError, UnsupportedError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor.block import (
    Block,
    BlockBytes,
    as_bytes,
    at_front,
    read_block,
    same_program,
    same_tables,
)
from qgraph.rl.actor.observations import wrong_shape
from qgraph.rl.actor.packer import Packer
from qgraph.rl.actor.plain import PlainActor, read_weights
from qgraph.rl.actor.records import ALIGNMENT

if TYPE_CHECKING:
    from qgraph import _native

LEVELS = (Level.AUTO, "numpy", *kernels.NATIVE_LEVELS)
CHUNK = 256  # observations at a time


class Actor:
    """Runs the policy of a block, without a framework.

    All levels compute the same bits. One thread at a time may use an actor.

    Args:
        block: The block: bytes, such as a view of shared memory. Bytes that begin at a multiple of
            64 are used in place and must not change while the actor uses them; others are copied.
        level: CPU instructions to use: `auto` takes the best of this machine, `numpy` needs no
            native code, and `qgraph.choices.Level` lists the others.
        compute_bits: Bits of weights to compute with, if they differ from those of the block. The
            weights of each block are then unpacked and packed again.

    Attributes:
        level: The level in use.
        shape: Shape of one observation.
        outputs: Names of the outputs.
        version: Version of the block.
        refused: Number of observations that were refused because of NaN or infinity.

    Raises:
        LoadError: The block is damaged.
        UsageError: The level is unknown.
        UnsupportedError: This build or CPU does not support the level.

    Examples:
        `program` and `weights` are those of the example of `ActorProgram`.

        >>> import numpy as np
        >>> from qgraph.rl.actor import Actor, Packer
        >>> actor = Actor(Packer(program, bits=8).pack(weights))
        >>> actor(np.zeros((5, 4), np.float32)).shape
        (5, 2)
    """

    def __init__(
        self, block: BlockBytes, level: str = "auto", compute_bits: int | None = None
    ) -> None:
        self._number = level_number(level)
        self.level = LEVELS[self._number]
        self.refused = 0  # observations with NaN or infinity
        self._compute_bits = compute_bits
        self._begin(read_block(block))

    def __call__(self, observations: Array) -> Array:
        """Compute the first output.

        Args:
            observations: Array `[n, *shape]`, or `[*shape]` for a single observation.

        Returns:
            The first output, float32 [n, *its shape]; for a single observation without the first
            axis.

        Raises:
            UsageError: The observations have another shape, or contain NaN or infinity.
        """
        output = self._act(observations)
        return self._run_any(observations)[0] if output is None else output

    def run(self, observations: Array) -> dict[str, Array]:
        """Compute every output.

        Args:
            observations: Array `[n, *shape]`, or `[*shape]` for a single observation.

        Returns:
            The outputs by name, float32, with shapes as from a call.

        Raises:
            UsageError: The observations have another shape, or contain NaN or infinity.
        """
        outputs = self._act_all(observations)
        outputs = self._run_any(observations) if outputs is None else outputs
        return dict(zip(self.outputs, outputs, strict=True))

    def switch(self, block: BlockBytes, check: str = "checksum") -> None:
        """Replace the block by another one of the same program and bits.

        Args:
            block: The new block, as in the constructor.
            check: `checksum` checks the whole block, `header` only its tables.

        Raises:
            LoadError: The block is damaged or has another program. The actor keeps its block.
            UsageError: The check is unknown.
        """
        if check not in ("checksum", "header"):
            raise UsageError(f"unknown check `{check}`", hint="choose checksum or header")
        given = as_bytes(block)
        version = same_program(given, self._tables, check == "checksum")
        if self._packer is not None:
            given = self._packer.pack(read_weights(read_block(given, checksum=False)))
        self._runner.use(_aligned(given))
        self.version = version

    def switch_program(self, block: BlockBytes) -> None:
        """Replace the block by one of any program and bits with the same observations and outputs.

        Args:
            block: The new block. Other bytes may follow it.

        Raises:
            LoadError: The block is damaged or has other observations or outputs. The actor keeps
                its block.
        """
        given = at_front(block)
        if same_tables(given, self._tables):
            return self.switch(given)
        read = read_block(given)
        shapes, now = read.program.shapes(), self._program.shapes()
        wanted = {name: now[name] for name in self.outputs}
        given_outputs = {name: shapes[name] for name in read.outputs}
        # In this order, since a call computes the first output.
        if read.shape != self.shape or list(given_outputs.items()) != list(wanted.items()):
            raise LoadError("the block is of a policy with other observations or outputs")
        self._begin(read)

    def _begin(self, block: Block) -> None:
        program, tables, version = block.program, block.layout.tables, block.version
        bits = {kernel.bits for kernel in block.layout.kernels.values()}
        packer = None
        if self._compute_bits is not None and bits != {self._compute_bits}:
            packer = Packer(program, self._compute_bits)
            block = read_block(packer.pack(read_weights(block)), checksum=False)
        native = kernels.native_actor()
        runner: PlainActor | _native.actor.Actor
        if native is None or self.level == "numpy":
            runner = PlainActor(block)
        else:
            level = self._number - LEVELS.index("plain")
            runner = native.Actor(_aligned(block.buffer), level)
        self._program, self._tables, self._packer, self._runner = program, tables, packer, runner
        self.shape, self.outputs, self.version = program.shape, program.outputs, version
        self._act, self._act_all = runner.act, runner.act_all

    def _run_any(self, observations: Array) -> list[Array]:
        """Compute what `_act` refuses: other types, many observations, and errors."""
        x = self._checked(observations)
        if x.shape == self.shape:
            return self._outputs(x)
        parts = [self._outputs(x[at : at + CHUNK]) for at in range(0, len(x), CHUNK)]
        if parts:
            return [np.concatenate(output) for output in zip(*parts, strict=True)]
        one = self._outputs(np.zeros(self.shape, np.float32))
        return [np.zeros((0, *y.shape), np.float32) for y in one]

    def _outputs(self, x: Array) -> list[Array]:
        outputs = self._act_all(x)
        if outputs is None:
            raise UsageError(f"the {self.level} actor refuses observations {list(x.shape)}")
        return [*outputs]

    def _checked(self, observations: Array) -> Array:
        given = np.asarray(observations)
        if given.dtype.kind not in "fiub":
            raise UsageError(f"observations must be numbers, not {given.dtype}")
        if given.shape != self.shape and given.shape[1:] != self.shape:
            raise wrong_shape(given.shape, self.shape)
        x = np.empty(given.shape, np.float32)
        with np.errstate(over="ignore"):
            x[...] = given
        finite = np.isfinite(x)
        if finite.all():
            return x
        wrong = np.argwhere(~finite)
        alone = x.shape == self.shape
        self.refused += 1 if alone else len(np.unique(wrong[:, 0]))
        first = tuple(int(i) for i in wrong[0])
        raise UsageError(
            f"the observations have {len(wrong)} numbers that are not finite in float32",
            node=f"observations{list(first)} = {given[first]}",
            hint="check the observations that the environment returns",
        )


def level_number(level: str) -> int:
    """The place in LEVELS; `auto` is the best one of this machine.

    Raises UsageError for an unknown level, UnsupportedError for one that this machine lacks.
    """
    chosen(LEVELS, level, "level")
    engine = kernels.native_engine() if kernels.native_actor() is not None else None
    first = LEVELS.index("plain")
    if level == "auto":
        return LEVELS.index("numpy") if engine is None else first + engine.best_level()
    number = LEVELS.index(level)
    if level != "numpy" and (engine is None or not engine.supports(number - first)):
        raise UnsupportedError(
            f"this machine or build does not support {level}", hint="`auto` takes the best level"
        )
    return number


def levels() -> list[str]:
    """The levels that this machine and build support, without `auto`."""
    native = kernels.native_engine() if kernels.native_actor() is not None else None
    names = LEVELS[LEVELS.index("plain") :]
    return ["numpy", *(name for i, name in enumerate(names) if native and native.supports(i))]


def _aligned(block: Array) -> Array:
    """The same bytes at a multiple of 64, copied if needed."""
    if block.ctypes.data % ALIGNMENT == 0:
        return block
    memory = np.empty(len(block) + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    memory[begin : begin + len(block)] = block
    return memory[begin : begin + len(block)]
