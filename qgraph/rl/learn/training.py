"""A run: actors fill the replay, the learner learns from it, and actors get the new policy.

The first `Training` imports TensorFlow: create it late.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack, closing
from dataclasses import asdict, replace

import numpy as np

from qgraph.archives import read_json, reading
from qgraph.errors import RunError, TrainingError, UsageError
from qgraph.files import write_whole
from qgraph.ir.types import Array
from qgraph.progress import Steps, silent_steps
from qgraph.rl.actor import Actor
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.agents.learner import teacher_of
from qgraph.rl.agents.registry import learner_for
from qgraph.rl.compress.learner_messages import Sample
from qgraph.rl.compress.settings import Settings
from qgraph.rl.environments import make
from qgraph.rl.learn.bits_phase import BitsPhase
from qgraph.rl.learn.directory import (
    BOARD,
    BREAKDOWN,
    CHECKPOINT,
    ENERGY,
    EPISODES,
    PROGRESS,
    Rows,
    RunDirectory,
)
from qgraph.rl.learn.energy import Costs, Meter, together
from qgraph.rl.learn.policy_files import PolicyFiles
from qgraph.rl.learn.ray_actors import RayActors
from qgraph.rl.learn.records import record_type
from qgraph.rl.learn.sources import ActorProcesses, ExperienceSource, Job, LocalActors
from qgraph.rl.learn.status import (
    BREAKDOWN_COLUMNS,
    EPISODE_COLUMNS,
    STATUS_COLUMNS,
    Counts,
    Status,
    Watch,
)
from qgraph.rl.monitor import LearnerFacts
from qgraph.rl.monitor.indicators import RECENT
from qgraph.rl.policy.play import Outputs, Returns, play
from qgraph.rl.setting_text import SettingText
from qgraph.stopping import stoppable
from qgraph.stored import part
from qgraph.train.checkpoint import Checkpoint, read_checkpoint, restore

EVALUATION_SEED = 1_000_000  # not among the seeds of actors
MAX_WAIT = 0.05  # seconds that the learner waits for records at most
CHECKPOINT_SECONDS = 60.0
KEPT_REPLAY = 1 << 28  # bytes; a resumed run fills a larger replay again


class Training:
    """A run, until actors have taken `steps` steps or the user stops it."""

    def __init__(self, config: RunConfig, directory: RunDirectory, *, resume: bool = False) -> None:
        self.config, self.directory = config, directory
        with closing(make(config.environment)) as environment:  # for its shapes and actions
            self.learner = learner_for(config, environment)
            self.replay = config.memory(record_type(environment, config.state_size))
            shape = environment.shape
        self.limiter = config.limiter()
        self.rng = np.random.default_rng(config.seed)
        self.counts = Counts()
        self.resumed = resume
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.sample = Sample(shape, config.seed) if config.compress or config.train_bits else None
        self.bits = BitsPhase(config, self.learner, self.sample)
        self.policies = PolicyFiles(directory.path, self.bits)
        self.identity = self._identity()  # while the policy is float
        if resume:
            self._restore()
        since = (self.counts.learner_steps, self.limiter.inserts) if resume else (None, None)
        self.progress = Rows(directory.path / PROGRESS, STATUS_COLUMNS, since[0])
        self.episodes = Rows(directory.path / EPISODES, EPISODE_COLUMNS, since[1])
        self.breakdown = Rows(directory.path / BREAKDOWN, BREAKDOWN_COLUMNS, since[1])
        from qgraph.rl.learn.scalars import Scalars

        self.scalars = Scalars(directory.path / BOARD)
        self.version_distances: list[float] = []
        self.losses: list[float] = []
        self.status: Status | None = None
        self.actors: ExperienceSource | None = None  # while it runs
        self.warnings = config.warnings()  # and those of processes that did not end the run
        self.compression = self._compression(resume)
        self.teacher = teacher_of(self.learner, self.compression)
        self.facts = LearnerFacts()

    @property
    def done(self) -> bool:
        return self.limiter.inserts >= self.config.steps

    def run(self, watch: Watch, tick: Steps = silent_steps) -> bool:
        """Train; returns True at the end, False if the user stopped the run, which can be resumed.

        Raises TrainingError for a loss that is not finite.
        """
        if self.done:
            raise UsageError(
                f"the run has reached its end, {self.limiter.inserts} steps",
                hint=SettingText("more {steps}"),
            )
        if not self.config.energy:
            return self._run(watch, tick, None)
        with closing(Meter(self.config.country)) as meter:
            return self._run(watch, tick, meter)

    def _run(self, watch: Watch, tick: Steps, meter: Meter | None) -> bool:
        self.actors = actors = self._actors()
        saved = time.monotonic()
        try:
            self._publish(actors)
            with stoppable() as stopped:
                while not self.done and not stopped():
                    has_learned = self._turn(actors)
                    tick(self.limiter.inserts, self.config.steps)
                    if has_learned and self.counts.learner_steps % self.config.evaluate_every == 0:
                        self._report(actors, watch)
                    if time.monotonic() - saved > CHECKPOINT_SECONDS:
                        self.checkpoint()
                        saved = time.monotonic()
            reported = self.status and self.status.learner_steps
            if self.done and reported != self.counts.learner_steps:
                self._report(actors, watch)
            self.checkpoint()
            if meter is not None:
                self._write_energy(meter.read({"learner": os.getpid(), **actors.processes()}))
            return self.done
        except RunError:  # a process died; the learner is intact
            self.checkpoint()
            raise
        finally:
            with ExitStack() as ends:
                for written in (self.progress, self.episodes, self.breakdown, self.scalars):
                    ends.callback(written.close)
                ends.callback(actors.close)
            self.warnings += actors.warnings()
            self.actors = None

    def _actors(self) -> ExperienceSource:
        job = Job(
            self.config,
            self.teacher.spec,
            self.replay.dtype,
            self.limiter.inserts // self.config.actors,
            self.counts.learner_steps,
            self.compression,
        )
        if self.config.in_process:
            return LocalActors(job)
        return RayActors(job) if self.config.ray else ActorProcesses(job)

    def _publish(self, actors: ExperienceSource) -> None:
        if self.compression is not None and self.sample is not None:
            facts = replace(
                self.facts,
                seconds=self.counts.seconds,
                returned=_mean(self.recent),
                staleness=_mean(self.version_distances),
                episodes=float(self.counts.episodes),
            )
            actors.send(facts, self.sample.observations())
        weights = self.teacher.weights
        if self.bits.begun:  # deviations of actions beside them stay float
            weights = {**weights, **self.bits.weights()}
        actors.publish(weights, self.counts.learner_steps)

    def _compression(self, resume: bool) -> Settings | None:
        config = self.config
        if not config.compress:
            return None
        return Settings(
            config.compress,
            config.monitor or "watch",
            config.monitor_every,
            str(self.directory.path.resolve()),
            self.counts.learner_steps if resume else None,
            config.seed,
        )

    def _turn(self, actors: ExperienceSource) -> bool:
        """Insert records, then learn once, as the limiter allows; returns whether it learned."""
        began = time.perf_counter()
        most = min(self.limiter.may_insert(), self.config.steps - self.limiter.inserts)
        records = actors.take(most, 0.0 if self.limiter.may_sample() else MAX_WAIT)
        if len(records):
            self._insert(records)
        learns = self.limiter.may_sample()
        if learns:
            self._learn()
            if self.counts.learner_steps % self.config.publish_every == 0:
                self._publish(actors)
        passed = time.perf_counter() - began
        self.counts.seconds += passed
        self.counts.waited += 0.0 if learns else passed
        return learns

    def _insert(self, records: Array) -> None:
        self.replay.add(records)
        if self.sample is not None:
            self.sample.add(records["observation"])
        self.limiter.insert(len(records))
        self.version_distances.append(self.counts.learner_steps - float(records["version"].mean()))
        for record in records[records["length"] > 0]:
            self.counts.episodes += 1
            self.recent.append(float(record["returned"]))
            names = ("actor", "returned", "length", "version")
            row = {name: record[name].item() for name in names}
            seconds = round(self.counts.seconds, 3)
            self.episodes.add({"actor_steps": self.limiter.inserts, **row, "seconds": seconds})

    def _learn(self) -> None:
        if self.bits.begin_if_due(self.limiter.inserts):
            self.counts.best = None  # of the float policy
        batch = self.replay.sample(self.config.batch_size, self.rng)
        self.limiter.sample()
        errors, loss = self.learner.step(batch)
        self.counts.learner_steps += 1
        if not np.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} after {self.counts.learner_steps} learner steps",
                hint=SettingText("a lower {learning_rate}, or smaller rewards"),
            )
        self.replay.update(batch.places, errors)
        self.losses.append(loss)

    def _report(self, actors: ExperienceSource, watch: Watch) -> None:
        parts = actors.breakdown()
        original = self.policies.current(self.counts.learner_steps)
        found = self._play(original.outputs)
        acting = actors.compressed_actor() if self.config.monitor else None
        if acting is not None:
            self.facts = self._compared(original.outputs, found, acting)
        if self.counts.best is None or found.mean >= self.counts.best:
            self.counts.best = found.mean
            self.policies.write(original, found)
        counts = self.counts
        self.status = Status(
            counts.learner_steps,
            self.limiter.inserts,
            counts.episodes,
            round(counts.seconds, 3),
            found.mean,
            found.error,
            _mean(self.recent),
            _mean(self.losses),
            self.limiter.samples / max(self.limiter.inserts, 1),
            _mean(self.version_distances),
            counts.waited / max(counts.seconds, 1e-9),
            _waiting(parts),
        )
        self.losses.clear()
        self.version_distances.clear()
        self.progress.add(asdict(self.status))
        self.scalars.add(asdict(self.status), self.limiter.inserts)
        for index, each in enumerate(parts):
            rounded = {name: round(value, 3) for name, value in each.items()}
            steps = self.limiter.inserts
            self.breakdown.add({"actor_steps": steps, "actor": index, **rounded})
        watch(self.status)

    def _play(self, policy: Outputs, drawn: bool = False) -> Returns:
        seeds = range(EVALUATION_SEED, EVALUATION_SEED + self.config.episodes)
        rng = np.random.default_rng(EVALUATION_SEED) if drawn else None
        return play(self.config.environment, policy, self.learner.head, seeds, rng=rng)

    def _compared(self, original: Outputs, greedy: Returns, acting: Actor) -> LearnerFacts:
        """The returns of both policies with drawn actions, as actors act."""
        draws = self.learner.head.draws
        return LearnerFacts(
            original_return=(self._play(original, drawn=True) if draws else greedy).mean,
            compressed_return=self._play(acting, drawn=draws).mean,
            compressed_version=float(acting.version),
        )

    def _write_energy(self, found: Costs) -> None:
        """Write the energy of all parts of a resumed run."""
        path = self.directory.path / ENERGY
        if self.resumed and path.exists():
            with reading(path):
                found = together(read_json(path), found)
        write_whole(path, (json.dumps(found, indent=1) + "\n").encode())

    def checkpoint(self) -> None:
        """Replace the checkpoint, whole or not at all.

        Raises OutputError, and TrainingError for weights that are not finite; the last checkpoint
        then stays.
        """
        if not all(np.isfinite(v.numpy()).all() for v in self.learner.policy.values()):
            raise TrainingError(
                f"the policy has weights that are not finite after {self.counts.learner_steps} "
                "learner steps",
                hint=SettingText("a lower {learning_rate}; the last checkpoint is finite"),
            )
        facts = {
            "counts": asdict(self.counts),
            "limiter": self.limiter.state(),
            "random": self.rng.bit_generator.state,
            "recent": list(self.recent),
            "bits": self.bits.facts(),
        }
        state = {name: v.numpy() for name, v in self.learner.state.items()}
        kept = self.bits.arrays()
        if self.replay.nbytes <= KEPT_REPLAY:
            kept |= {f"replay/{name}": v for name, v in self.replay.state().items()}
        Checkpoint(self.identity, {**state, **kept}, facts).write(self.directory.path / CHECKPOINT)

    def _restore(self) -> None:
        """Continue from the checkpoint. Raises LoadError."""
        path = self.directory.path / CHECKPOINT
        found = read_checkpoint(path, self.identity)
        restore(self.learner.state, found)
        with reading(path, "its network of few bits cannot be read"):
            self.bits.restore(found)
        restore(self.learner.state, found)
        with reading(path, "its record cannot be read"):
            self.counts = Counts(**found.facts["counts"])
            self.counts.best = self.policies.best(self.counts.best)
            self.limiter.restore(found.facts["limiter"])
            replay = part(found.variables, "replay")
            if replay:
                self.replay.restore(replay)
            else:
                self.limiter.restart(self.config.limiter().min_inserts)
            self.rng.bit_generator.state = found.facts["random"]
            self.recent.extend(found.facts.get("recent", ()))  # older checkpoints lack them

    def _identity(self) -> str:
        """A digest of the shapes of all variables, which a checkpoint must match."""
        shapes = {name: list(v.shape) for name, v in self.learner.state.items()}
        text = json.dumps([shapes, str(self.replay.dtype)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _waiting(parts: list[dict[str, float]]) -> float:
    """The share of the actors' seconds that they waited."""
    every = sum(sum(part.values()) - part["steps"] for part in parts)
    return sum(part["waiting"] for part in parts) / max(every, 1e-9)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return float(np.mean(found)) if found else float("nan")
