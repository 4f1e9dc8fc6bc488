"""The compressor of a run: snapshots of a learner in, blocks for actors out."""

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

TABLES = 1 << 16  # extra bytes for the tables of a compressed program
CHECKED_OBSERVATIONS = 8  # observations that check a compressed policy; measurements use all
KEPT_EVERY = 20.0  # seconds between copies of students


class CompressionWorker:
    """Compresses one snapshot after another, as its monitor decides (AcceRL, figure 3).

    A snapshot does not change while links learn from it; the next snapshot is then the newest one.
    spec: of the learner's policy. every: snapshots between measurements. folder: the directory for
    students, or None; with `resume` they continue from it. heartbeat: called from time to time.
    has_policy: whether actors already have a compressed policy.

    If a link fails, `step` returns None and actors keep the last good policy, or get the original
    before there is one. A decision that cannot compress any policy is reverted and not made again,
    unless the numbers were the cause, since the next weights may be better. failures: how often
    compression failed; a link that has to wait for observations does not count. With `resume`, the
    policies of the earlier worker are unknown, so evaluations of them are ignored.
    """

    def __init__(
        self,
        spec: PolicySpec,
        monitor: Monitor,
        every: int = 10,
        seed: int = 0,
        folder: Path | None = None,
        resume: bool = False,
        heartbeat: Callable[[], object] = silent,
        has_policy: bool = False,
    ) -> None:
        self.spec, self.monitor, self.every = spec, monitor, every
        self._has_policy = has_policy
        self.failures = 0
        self._heartbeat = heartbeat
        self._folder, self._kept = folder, time.monotonic()
        self._memory: Memory = read_students(folder) if folder and resume else {}
        self._rng = np.random.default_rng(seed)
        self._last_success = monitor.worked  # the last decision by which a policy was compressed
        self._reported_failure = ""
        self._rounds = 0
        # The first version of this worker that the current chain compressed.
        self._first_version = math.inf if resume else 0.0
        self._original_versions: set[float] = set()  # versions that actors got as the original

    @property
    def max_block_size(self) -> int:
        """Largest size of a block in bytes."""
        return max_block_size(self.spec.program)

    @property
    def _due(self) -> bool:
        """Whether the next compressed policy is measured."""
        return self._rounds % self.every == 0

    def step(
        self, weights: Mapping[str, Array], facts: LearnerFacts, observations: Array | None = None
    ) -> Array | None:
        """The block for a snapshot of version `facts.version`; None to keep the last one."""
        original = self.spec.policy(self._snapshot(weights))
        if self._first_version == math.inf:
            self._first_version = facts.version
        try:
            policy, block = self._compressed(original, facts.version, observations)
        except QGraphError as error:
            early = isinstance(error, CalibrationError) and _is_none(observations)
            if not early:
                self._failed(facts, error)
            return None if self._has_policy else self._block_of_original(original, facts.version)
        self._last_success, self._reported_failure = self.monitor.decision, ""
        self._has_policy = True
        share = self.monitor.decision.share
        if self._due:
            self._measure(original, policy, observations, facts)
        self._rounds += 1
        if time.monotonic() - self._kept > KEPT_EVERY:
            self.keep()
        if share < 1 and self._rng.random() >= share:
            return self._block_of_original(original, facts.version)
        return block

    def _snapshot(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Copies, since the next weights overwrite the given ones."""
        names = self.spec.program.weight_shapes
        return {name: np.array(weights[name], np.float32) for name in names}

    def _block_of_original(self, original: ChainPolicy, version: int) -> Array | None:
        """The block of the original; None if it cannot be packed."""
        self._original_versions.add(version)
        try:
            return original.pack(version)
        except TrainingError:  # its weights are not finite, which the learner reports
            return None

    def keep(self) -> None:
        """Write the students. Raises OutputError."""
        if self._folder is not None:
            write_students(self._folder, self._memory)
        self._kept = time.monotonic()

    def _compressed(
        self, original: ChainPolicy, version: int, observations: Array | None
    ) -> tuple[ChainPolicy, Array]:
        policy = self.monitor.decision.compressor(
            original, observations, self._memory, self._heartbeat
        )
        block = policy.pack(version)
        if len(block) > self.max_block_size:
            raise UsageError(f"a block of {len(block)} bytes is larger than the original's")
        if observations is not None and len(observations):
            tried = observations if self._due else observations[:CHECKED_OBSERVATIONS]
            acted = replace(policy, block=block).actor()(tried)
            if not np.isfinite(acted).all():
                raise TrainingError("the compressed policy has outputs that are not finite")
        return policy, block

    def _measure(
        self, original: ChainPolicy, policy: ChainPolicy, seen: Array | None, facts: LearnerFacts
    ) -> None:
        """Pass a measurement to the monitor, without evaluations of earlier chains or originals."""
        chain, evaluated = self.monitor.decision.compressor, facts.compressed_version
        if not evaluated >= self._first_version or evaluated in self._original_versions:
            facts = replace(facts, compressed_return=NAN)
        decision = self.monitor.decide(self._indicators(original, policy, seen, facts))
        if decision.compressor != chain:
            self._first_version = facts.version + 1

    def _indicators(
        self, original: ChainPolicy, policy: ChainPolicy, seen: Array | None, facts: LearnerFacts
    ) -> Indicators:
        if seen is None or _is_none(seen):
            return unmeasured(facts)
        return measure(original, policy, seen, facts)

    def _failed(self, facts: LearnerFacts, error: QGraphError) -> None:
        """Log a failure once for each reason, and revert a decision that does not work."""
        self.failures += 1
        complaint, good, chain = str(error), self._last_success, self.monitor.decision.compressor
        leaves = good is not None and good.compressor != chain
        if leaves or complaint != self._reported_failure:
            for_good = not isinstance(error, TrainingError)
            self.monitor.failed(unmeasured(facts), complaint, good, for_good)
        self._reported_failure = complaint
        if self.monitor.decision.compressor != chain:
            self._first_version, self._reported_failure = facts.version + 1, ""


def warnings(failures: int) -> list[str]:
    """A message about failures of the compressor that did not end the run."""
    if not failures:
        return []
    return [f"{failures} policies were not compressed, so that older ones acted (monitor.csv)"]


def _is_none(observations: Array | None) -> bool:
    return observations is None or not len(observations)


def max_block_size(program: ActorProgram) -> int:
    """The bytes for a block of a program, or of a compressed form of it."""
    return Packer(program, 32).size + TABLES
