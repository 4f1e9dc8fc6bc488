"""An actor: observations in, outputs out, by a block that is used where it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from qgraph import kernels
from qgraph.errors import LoadError, UnsupportedError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor.block import Block, as_bytes, at_front, read_block, same_program, same_tables
from qgraph.rl.actor.observations import wrong_shape
from qgraph.rl.actor.packer import Packer
from qgraph.rl.actor.plain import PlainActor, read_weights
from qgraph.rl.actor.records import ALIGNMENT

if TYPE_CHECKING:
    from qgraph import _native

LEVELS = ("auto", "numpy", *kernels.NATIVE_LEVELS)
CHUNK = 256  # observations at a time


class Actor:
    """Acts by a block until it is given another one.

    block: bytes, such as a view of shared memory; they are kept alive, used where they lie (if
    that is at a multiple of 64), and must not change while the actor has them. level: which
    instructions, one of `LEVELS`; results are the same bits. compute_bits: bits to compute in
    where they are not those of the block, which are those of the broadcast: the weights of each
    block are then unpacked, and packed anew. An actor is for one thread.

    Raises LoadError for a block that does not hold, UsageError for options that are not,
    UnsupportedError where this build or CPU does not have the level.
    """

    def __init__(self, block: Any, level: str = "auto", compute_bits: int | None = None) -> None:
        self._number = _number(level)
        self.level = LEVELS[self._number]
        self.refused = 0  # observations that were not finite
        self._compute_bits = compute_bits
        self._begin(read_block(block))

    def __call__(self, observations: Array) -> Array:
        """The first output, float32 [n, *its shape], of observations [n, *shape].

        Of one observation [*shape] it is [*its shape]. Raises UsageError for observations of
        another shape, or with NaN or infinity in them, which it names.
        """
        found = self._act(observations)
        return self._slowly(observations)[0] if found is None else found

    def run(self, observations: Array) -> dict[str, Array]:
        """Every output by name; else as the call."""
        found = self._act_all(observations)
        found = self._slowly(observations) if found is None else found
        return dict(zip(self.outputs, found, strict=True))

    def switch(self, block: Any, check: str = "checksum") -> None:
        """Go on with another block of the same program and bits, where it lies.

        check: `checksum` looks at all of it, `header` at its tables alone. Raises LoadError for
        one that does not hold or is of another program; the one in use stays then.
        """
        if check not in ("checksum", "header"):
            raise UsageError(f"check is `checksum` or `header`, not `{check}`")
        found = as_bytes(block)
        version = same_program(found, self._tables, check == "checksum")
        if self._packer is not None:
            found = self._packer.pack(read_weights(read_block(found, checksum=False)))
        self._runner.use(_aligned(found))
        self.version = version

    def become(self, block: Any) -> None:
        """Go on with a block of any program and bits that has the same observations and outputs.

        block: it may stand at the front of a longer buffer. Raises LoadError for one that does not
        hold or that others than these outputs come from; the one in use stays then.
        """
        given = at_front(block)
        if same_tables(given, self._tables):
            return self.switch(given)
        found = read_block(given)
        shapes, now = found.program.shapes(), self._program.shapes()
        wanted = {name: now[name] for name in self.outputs}
        if found.shape != self.shape or {n: shapes[n] for n in found.outputs} != wanted:
            raise LoadError("the block is of a policy with other observations or outputs")
        self._begin(found)

    def _begin(self, found: Block) -> None:
        program, tables, version = found.program, found.layout.tables, found.version
        bits = {kernel.bits for kernel in found.layout.kernels.values()}
        packer = None
        if self._compute_bits is not None and bits != {self._compute_bits}:
            packer = Packer(program, self._compute_bits)
            found = read_block(packer.pack(read_weights(found)), checksum=False)
        native = kernels.native_actor()
        runner: PlainActor | _native.actor.Actor
        if native is None or self.level == "numpy":
            runner = PlainActor(found)
        else:
            level = self._number - LEVELS.index("plain")
            runner = native.Actor(_aligned(found.buffer), level)
        self._program, self._tables, self._packer, self._runner = program, tables, packer, runner
        self.shape, self.outputs, self.version = program.shape, program.outputs, version
        self._act, self._act_all = runner.act, runner.act_all

    def _slowly(self, observations: Array) -> list[Array]:
        """What native code leaves to others: conversions, many observations, and errors."""
        x = self._checked(observations)
        if x.shape == self.shape:
            return self._outputs(x)
        parts = [self._outputs(x[at : at + CHUNK]) for at in range(0, len(x), CHUNK)]
        if parts:
            return [np.concatenate(output) for output in zip(*parts, strict=True)]
        one = self._outputs(np.zeros(self.shape, np.float32))
        return [np.zeros((0, *y.shape), np.float32) for y in one]

    def _outputs(self, x: Array) -> list[Array]:
        found = self._act_all(x)
        if found is None:
            raise UsageError(f"the {self.level} actor refuses observations {x.shape}")
        return [*found]

    def _checked(self, observations: Array) -> Array:
        given = np.asarray(observations)
        if given.dtype.kind not in "fiub":
            raise UsageError(f"observations are numbers, not {given.dtype}")
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
            f"{len(wrong)} numbers of the observations are not finite in float32",
            node=f"observations{list(first)} = {given[first]}",
            hint="look at what the environment gives",
        )


def _number(level: str) -> int:
    """The place in LEVELS, of the best there is for `auto`."""
    if level not in LEVELS:
        raise UsageError(f"the level is one of {', '.join(LEVELS)}, not {level}")
    engine = kernels.native_engine() if kernels.native_actor() is not None else None
    first = LEVELS.index("plain")
    if level == "auto":
        return LEVELS.index("numpy") if engine is None else first + engine.best_level()
    number = LEVELS.index(level)
    if level != "numpy" and (engine is None or not engine.supports(number - first)):
        raise UnsupportedError(
            f"this machine or build has no {level}", hint="`auto` takes the best there is"
        )
    return number


def levels() -> list[str]:
    """The levels that this machine and build have, all but `auto`."""
    native = kernels.native_engine() if kernels.native_actor() is not None else None
    names = LEVELS[LEVELS.index("plain") :]
    found = [] if native is None else [name for i, name in enumerate(names) if native.supports(i)]
    return ["numpy", *found]


def _aligned(block: Array) -> Array:
    """The same bytes, at a multiple of 64."""
    if block.ctypes.data % ALIGNMENT == 0:
        return block
    found = np.empty(len(block) + ALIGNMENT, np.uint8)
    begin = -found.ctypes.data % ALIGNMENT
    found[begin : begin + len(block)] = block
    return found[begin : begin + len(block)]
