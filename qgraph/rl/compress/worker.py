"""The compressor at work: snapshots of a learner in, blocks for actors out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from qgraph.errors import CalibrationError, QGraphError, TrainingError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, Packer
from qgraph.rl.compress.chain_policy import ChainPolicy, Memory, PolicySpec, silent
from qgraph.rl.compress.student_file import read_students, write_students
from qgraph.rl.monitor import Indicators, LearnerFacts, Monitor, measure
from qgraph.rl.monitor.indicators import NAN, unmeasured

TABLES = 1 << 16  # bytes by which the tables of a compressed program may be the larger ones
TRIED = 8  # observations that a compressed policy is tried on before it acts; all at looks
KEPT_EVERY = 20.0  # seconds between copies of what students have learnt


class CompressionWorker:
    """Compresses one snapshot after the other, by what its monitor decides (AcceRL, figure 3).

    The snapshot stays as it is while links learn from it; the next one is then as new as it can be.
    spec: of the learner's policy. every: snapshots between looks of the monitor. folder: where
    students are kept, None for nowhere; with `resume` they go on as they were there. beat: called
    now and then while it works. acting: whether actors have a compressed policy already.

    Where a link fails, `step` gives nothing, and the last good policy acts on; before there was
    one, the original does. A decision by which no policy can be compressed is left again, and not
    made a second time, unless numbers were to blame, which the next weights may not have.
    failures: how often that was; a link that needs observations, before there are any, has not
    failed. One with `resume` does not know what the worker before it made, so that evaluations of
    that tell it nothing.
    """

    def __init__(
        self,
        spec: PolicySpec,
        monitor: Monitor,
        every: int = 10,
        seed: int = 0,
        folder: Path | None = None,
        resume: bool = False,
        beat: Callable[[], object] = silent,
        acting: bool = False,
    ) -> None:
        self.spec, self.monitor, self.every = spec, monitor, every
        self._acting = acting
        self.failures = 0
        self._beat = beat
        self._folder, self._kept = folder, time.monotonic()
        self._memory: Memory = read_students(folder) if folder and resume else {}
        self._rng = np.random.default_rng(seed)
        self._good = monitor.worked  # the last decision by which a policy was compressed
        self._complaint = ""
        self._rounds = 0
        # The first own version of the chain in force.
        self._since = math.inf if resume else 0.0
        self._whole: set[float] = set()  # versions of which the original went out

    @property
    def room(self) -> int:
        """Bytes that a block has at most."""
        return room_for(self.spec.program)

    @property
    def _due(self) -> bool:
        """True if the monitor looks at the next compressed policy."""
        return self._rounds % self.every == 0

    def step(
        self, weights: Mapping[str, Array], facts: LearnerFacts, observations: Array | None = None
    ) -> Array | None:
        """The block for a snapshot of version `facts.version`; None where the last one acts on."""
        original = self.spec.policy(self._snapshot(weights))
        if self._since == math.inf:
            self._since = facts.version
        try:
            policy, block = self._compressed(original, facts.version, observations)
        except QGraphError as error:
            early = isinstance(error, CalibrationError) and _is_none(observations)
            if not early:
                self._failed(facts, error)
            return None if self._acting else self._whole_of(original, facts.version)
        self._good, self._complaint, self._acting = self.monitor.decision, "", True
        share = self.monitor.decision.share
        if self._due:
            self._look(original, policy, observations, facts)
        self._rounds += 1
        if time.monotonic() - self._kept > KEPT_EVERY:
            self.keep()
        if share < 1 and self._rng.random() >= share:
            return self._whole_of(original, facts.version)
        return block

    def _snapshot(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Copies: what is given is written over by the next weights."""
        names = self.spec.program.weight_shapes
        return {name: np.array(weights[name], np.float32) for name in names}

    def _whole_of(self, original: ChainPolicy, version: int) -> Array | None:
        """The block of the original, to act; None of one that none can be made of."""
        self._whole.add(version)
        try:
            return original.pack(version)
        except TrainingError:  # its weights are not finite, which its learner will say
            return None

    def keep(self) -> None:
        """Write what students have learnt. Raises OutputError."""
        if self._folder is not None:
            write_students(self._folder, self._memory)
        self._kept = time.monotonic()

    def _compressed(
        self, original: ChainPolicy, version: int, observations: Array | None
    ) -> tuple[ChainPolicy, Array]:
        policy = self.monitor.decision.compressor(original, observations, self._memory, self._beat)
        block = policy.pack(version)
        if len(block) > self.room:
            raise UsageError(f"a block of {len(block)} bytes is larger than the original's")
        if observations is not None and len(observations):
            tried = observations if self._due else observations[:TRIED]
            acted = replace(policy, block=block).actor()(tried)
            if not np.isfinite(acted).all():
                raise TrainingError("the compressed policy has outputs that are not finite")
        return policy, block

    def _look(
        self, original: ChainPolicy, policy: ChainPolicy, seen: Array | None, facts: LearnerFacts
    ) -> None:
        """Evaluations of a chain before, or of an original, say nothing of the chain in force."""
        chain, evaluated = self.monitor.decision.compressor, facts.compressed_version
        if not evaluated >= self._since or evaluated in self._whole:
            facts = replace(facts, compressed_return=NAN)
        decision = self.monitor.look(self._indicators(original, policy, seen, facts))
        if decision.compressor != chain:
            self._since = facts.version + 1

    def _indicators(
        self, original: ChainPolicy, policy: ChainPolicy, seen: Array | None, facts: LearnerFacts
    ) -> Indicators:
        if seen is None or _is_none(seen):
            return unmeasured(facts)
        return measure(original, policy, seen, facts)

    def _failed(self, facts: LearnerFacts, error: QGraphError) -> None:
        """Write it down, once for each reason, and leave a decision that does not work."""
        self.failures += 1
        complaint, good, chain = str(error), self._good, self.monitor.decision.compressor
        leaves = good is not None and good.compressor != chain
        if leaves or complaint != self._complaint:
            for_good = not isinstance(error, TrainingError)
            self.monitor.failed(unmeasured(facts), complaint, good, for_good)
        self._complaint = complaint
        if self.monitor.decision.compressor != chain:
            self._since, self._complaint = facts.version + 1, ""


def troubles(failures: int) -> list[str]:
    """The failures of a compressor that did not end the run, in words."""
    if not failures:
        return []
    return [f"{failures} policies were not compressed, so that older ones acted (monitor.csv)"]


def _is_none(observations: Array | None) -> bool:
    return observations is None or not len(observations)


def room_for(program: ActorProgram) -> int:
    """Bytes for a block of a program, or of what it is compressed to."""
    return Packer(program, 32).size + TABLES
