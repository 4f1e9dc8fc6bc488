"""Sources of the learner's transitions: actors in other processes, or in this one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from qgraph.foreign import Variable
from qgraph.ir.types import Array
from qgraph.rl.actor import Actor, ActorProgram, Packer, end_bits
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.broadcast import DirectPublisher, Experience, Publisher, Supervisor
from qgraph.rl.broadcast.experience import RingPlace
from qgraph.rl.broadcast.publisher import ProcessPublisher
from qgraph.rl.broadcast.subscriber import BlockSource
from qgraph.rl.compress.chain_policy import PolicySpec
from qgraph.rl.compress.publisher import CompressingPublisher
from qgraph.rl.compress.settings import Settings
from qgraph.rl.compress.worker import warnings
from qgraph.rl.head import Head
from qgraph.rl.learn.worker import ActorWorker
from qgraph.rl.monitor import LearnerFacts

RING = 64  # transitions that a ring has space for, unless a step of the learner needs more
RING_BYTES = 1 << 26  # the most that a ring gets for them
RESTARTS = 5
MODULE = "qgraph.rl.learn.actor_process"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# The numbers of an actor: its steps, and the seconds that they took.
PARTS = ("steps", "looking", "acting", "choosing", "environment", "waiting")
REFUSED = len(PARTS)  # place of the number of blocks that it refused


@dataclass(frozen=True)
class ActorSetup:
    """The part of an actor's settings that does not depend on its machine.

    config: of the run (JSON). index: the actor's number. initial_steps: the steps that it took
    before the run was resumed. initial_version: of the first policy then.
    """

    config: Mapping[str, object]
    head: Head
    index: int
    initial_steps: int
    initial_version: int


@dataclass(frozen=True)
class ActorProcessSettings(ActorSetup):
    """The settings of an actor process, with the places of its blocks and of its records."""

    policy: BlockSource
    records: RingPlace


class PackedBits(NamedTuple):
    """The bits of all layers, of the first and of the last, as in `Packer`."""

    bits: int
    first_bits: int | None
    last_bits: int | None


@dataclass(frozen=True)
class Job:
    """The settings of all actors of a run.

    dtype: of a transition's record. initial_steps: the steps that each actor took before the run
    was resumed. initial_version: of the first policy that it publishes.
    """

    config: RunConfig
    spec: PolicySpec
    dtype: np.dtype[np.void]
    initial_steps: int
    initial_version: int = 0
    compression: Settings | None = None

    def actor_settings(self, index: int) -> ActorSetup:
        config, head = self.config.as_json(), self.spec.head
        return ActorSetup(config, head, index, self.initial_steps, self.initial_version)


class ExperienceSource(Protocol):
    """The interface.

    breakdown: steps and seconds of each actor. processes: process ids by name. warnings: events
    that did not end the run, such as crashes and refused blocks. send: gives the compressor facts
    beside the next weights. compressed_actor: the newest compressed policy.
    """

    def send(self, facts: LearnerFacts, observations: Array | None) -> None: ...

    def publish(self, weights: Mapping[str, Variable], version: int) -> None: ...

    def compressed_actor(self) -> Actor | None: ...

    def take(self, most: int, timeout: float) -> Array: ...

    def breakdown(self) -> list[dict[str, float]]: ...

    def processes(self) -> dict[str, int]: ...

    def warnings(self) -> list[str]: ...

    def close(self) -> None: ...


class ActorProcesses:
    """A process for each actor, and one that packs or compresses policies unless the learner does.

    The first weights must be published before there are transitions. `take` raises RunError for a
    process that crashed too often.
    """

    def __init__(self, job: Job) -> None:
        self.config = config = job.config
        self.run = Supervisor(processes=config.actors + 1)
        try:
            self.publisher = self._publisher(job)
            capacity = ring_capacity(config, job.dtype.itemsize, config.actors)
            self.experience = Experience.create(job.dtype, capacity, config.actors)
            self.reader = self.experience.reader()
            for index in range(config.actors):
                self._start(index, job)
        except BaseException:
            self.close()
            raise

    def send(self, facts: LearnerFacts, observations: Array | None) -> None:
        if isinstance(self.publisher, CompressingPublisher):
            self.publisher.send(facts, observations)

    def publish(self, weights: Mapping[str, Variable], version: int) -> None:
        self.publisher.publish(weights, version)

    def compressed_actor(self) -> Actor | None:
        """The newest compressed policy; None without compression."""
        publisher = self.publisher
        return publisher.compressed_actor() if isinstance(publisher, CompressingPublisher) else None

    def take(self, most: int, timeout: float) -> Array:
        """At most `most` records; waits up to `timeout` seconds for the first."""
        self.run.check()
        return self.reader.take(most, timeout)

    def breakdown(self) -> list[dict[str, float]]:
        """Steps and seconds of each actor, by PARTS."""
        return [parts_of(self.run.numbers(_name(i))) for i in range(self.config.actors)]

    def processes(self) -> dict[str, int]:
        return {name: child.process.pid for name, child in self.run.children.items()}

    def warnings(self) -> list[str]:
        found = []
        for name, child in self.run.children.items():
            found += [f"{name} was restarted: it {why}" for why in child.crashes]
            refused = int(self.run.numbers(name)[REFUSED])
            if name.startswith("actor") and refused:
                found.append(f"{name} refused {refused} damaged blocks")
        if isinstance(self.publisher, CompressingPublisher):
            found += warnings(self.publisher.failures)
        return found

    def close(self) -> None:
        self.run.stop()

    def _publisher(self, job: Job) -> ProcessPublisher | DirectPublisher:
        config = self.config
        program = job.spec.program
        bits = packed_bits(config, program)
        if not config.quantizer:
            return DirectPublisher(program, config.actors, *bits)
        if job.compression is not None:
            return CompressingPublisher(
                self.run,
                job.spec,
                config.actors,
                job.compression,
                on_demand=config.on_demand,
            )
        return Publisher(self.run, program, config.actors, *bits, on_demand=config.on_demand)

    def _start(self, index: int, job: Job) -> None:
        own, policy = job.actor_settings(index), self.publisher.settings(index)
        records = self.experience.settings(index)
        settings = ActorProcessSettings(**vars(own), policy=policy, records=records)
        on_release = partial(self.publisher.release, index)
        self.run.start(
            _name(index),
            MODULE,
            settings,
            restarts=RESTARTS,
            on_release=on_release,
            environment=ONE_THREAD,
        )


class LocalActors:
    """Actors in this process, which take turns: one seed gives one result."""

    def __init__(self, job: Job) -> None:
        self.job, config, settings = job, job.config, job.compression
        self.packer = Packer(job.spec.program, *packed_bits(config, job.spec.program))
        self.compute_bits = compute_bits(config)
        self.compressor = None if settings is None else settings.worker(job.spec)
        self.messages: tuple[LearnerFacts, Array | None] = (LearnerFacts(), None)
        self.workers: list[ActorWorker] = []
        self.newest: Array | None = None  # the block
        self.actor: Actor | None = None  # by the newest block
        self.left = np.empty(0, job.dtype)
        self.turn = 0

    def send(self, facts: LearnerFacts, observations: Array | None) -> None:
        self.messages = facts, observations

    def publish(self, weights: Mapping[str, Variable], version: int) -> None:
        arrays = {name: np.asarray(weight) for name, weight in weights.items()}
        if self.compressor is None:
            block = self.packer.pack(arrays, version)
        else:
            facts, observations = self.messages
            compressed = self.compressor.step(arrays, replace(facts, version=version), observations)
            if compressed is None:
                return
            block = compressed
        self.newest = block
        if self.actor is not None:
            self.actor.switch_program(block)
            return
        self.actor, job = self._actor(block), self.job
        for index in range(job.config.actors):  # one by one, so that `close` reaches them
            latest = partial(self._latest, self._actor(block))
            worker = ActorWorker(job.config, index, job.spec.head, latest, job.initial_steps)
            self.workers.append(worker)

    def _actor(self, block: Array) -> Actor:
        return Actor(block, compute_bits=self.compute_bits)

    def _latest(self, own: Actor, taken: int) -> Actor:
        """A worker's own actor with the newest policy, which it keeps until it asks again."""
        assert self.newest is not None and self.actor is not None, "workers begin with a block"
        if own.version != self.actor.version:
            own.switch_program(self.newest)
        return own

    def compressed_actor(self) -> Actor | None:
        return self.actor

    def take(self, most: int, timeout: float) -> Array:
        """Exactly `most` records."""
        found, count = [self.left], len(self.left)
        while count < most:
            found.append(self.workers[self.turn].step())
            count += len(found[-1])
            self.turn = (self.turn + 1) % len(self.workers)
        records = np.concatenate(found)
        self.left = records[most:]
        return records[:most]

    def breakdown(self) -> list[dict[str, float]]:
        """Steps and seconds of each actor, by PARTS; none waits."""
        return [
            dict(
                zip(
                    PARTS,
                    map(float, (w.taken - self.job.initial_steps, *w.seconds, 0.0)),
                    strict=True,
                )
            )
            for w in self.workers
        ]

    def processes(self) -> dict[str, int]:
        return {}

    def warnings(self) -> list[str]:
        return [] if self.compressor is None else warnings(self.compressor.failures)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        if self.compressor is not None:
            self.compressor.keep()


def packed_bits(config: RunConfig, program: ActorProgram) -> PackedBits:
    """The bits of blocks that are broadcast."""
    alike = compute_bits(config) is None  # else first and last layers have no default of their own
    bits = config.broadcast_bits or config.actor_bits
    first, last = config.first_bits, config.last_bits
    if alike:
        first, last = end_bits(program, bits, first, last)
    return PackedBits(bits, first, last)


def ring_capacity(config: RunConfig, record_bytes: int, rings: int) -> int:
    """The most transitions in each ring that wait for the learner.

    While the learner takes a step, actors fill the rings with the transitions of its next step.
    With less space they would wait, and then the learner. More space would make transitions older.
    Synchronous actors wait for the next policy instead.

    record_bytes: of a transition. rings: their number.
    """
    if config.synchronous:
        return RING
    limiter = config.limiter()
    needed = math.ceil(limiter.batch / limiter.ratio / rings)
    return max(RING, min(needed, RING_BYTES // record_bytes))


def compute_bits(config: RunConfig) -> int | None:
    """The bits that actors compute with; None if they are those of the broadcast."""
    return None if config.actor_bits == config.broadcast_bits else config.actor_bits


def parts_of(numbers: Array) -> dict[str, float]:
    """The steps and seconds of an actor process, by PARTS."""
    return dict(zip(PARTS, map(float, numbers[: len(PARTS)]), strict=True))


def _name(index: int) -> str:
    return f"actor {index}"
