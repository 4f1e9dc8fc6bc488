"""The compressor at work: snapshots of a learner in, blocks for actors out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.errors import QGraphError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, Packer
from qgraph.rl.compress.chain import Memory
from qgraph.rl.compress.form import Policy
from qgraph.rl.head import Head
from qgraph.rl.monitor import Facts, Indicators, Monitor, measure
from qgraph.rl.monitor.indicators import unmeasured

TABLES = 1 << 16  # bytes by which the tables of a compressed program may be the larger ones


class Worker:
    """Compresses one snapshot after the other, by what its monitor decides (AcceRL, figure 3).

    The snapshot stays as it is while links learn from it; the next one is then as new as it can be.
    `program` and `head` are the learner's, every: snapshots between looks of the monitor.

    Where a link fails, `step` gives nothing, and the last good policy acts on; before there was
    one, the original does. failures: how often that was.
    """

    def __init__(
        self, program: ActorProgram, head: Head, monitor: Monitor, every: int = 10, seed: int = 0
    ) -> None:
        self.program, self.head, self.monitor, self.every = program, head, monitor, every
        self.failures = 0
        self._memory: dict[str, Memory] = {}  # of each chain
        self._rng = np.random.default_rng(seed)
        self._good = False  # was there a compressed policy?
        self._complaint = ""
        self._rounds = 0

    @property
    def room(self) -> int:
        """Bytes that a block has at most."""
        return room_for(self.program)

    def step(
        self, weights: Mapping[str, Array], facts: Facts, observations: Array | None = None
    ) -> Array | None:
        """The block for a snapshot of version `facts.version`; None where the last one acts on."""
        arrays = {name: np.array(weights[name], np.float32) for name in self.program.weight_shapes}
        original = Policy(self.program, arrays, self.head)
        try:
            policy, block = self._compressed(original, facts.version, observations)
        except QGraphError as error:
            self._failed(facts, str(error))
            return None if self._good else original.pack(facts.version)
        self._good = True
        share = self.monitor.decision.share
        if self._rounds % self.every == 0:
            self.monitor.look(self._indicators(original, policy, observations, facts))
        self._rounds += 1
        if share < 1 and self._rng.random() >= share:
            return original.pack(facts.version)
        return block

    def _compressed(
        self, original: Policy, version: int, observations: Array | None
    ) -> tuple[Policy, Array]:
        chain = self.monitor.decision.compressor
        memory = self._memory.setdefault(str(chain), {})
        policy = chain(original, observations, memory)
        block = policy.pack(version)
        if len(block) > self.room:
            raise UsageError(f"a block of {len(block)} bytes is larger than the original's")
        return policy, block

    def _indicators(
        self, original: Policy, policy: Policy, seen: Array | None, facts: Facts
    ) -> Indicators:
        if seen is None or not len(seen):
            return unmeasured(facts)
        return measure(original, policy, seen, facts)

    def _failed(self, facts: Facts, complaint: str) -> None:
        self.failures += 1
        if complaint != self._complaint:  # once for each reason
            self.monitor.failed(unmeasured(facts), complaint)
        self._complaint = complaint


def room_for(program: ActorProgram) -> int:
    """Bytes for a block of a program, or of what it is compressed to."""
    return Packer(program, 32).size + TABLES
