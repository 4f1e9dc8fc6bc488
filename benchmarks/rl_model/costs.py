"""Costs of the parts of a run, as seconds of a processor on this machine."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np

from qgraph.ir.types import Array
from qgraph.quiet import import_tensorflow_quietly
from qgraph.rl.actor import Actor, ActorProgram, Packer, end_bits
from qgraph.rl.agents.impala.config import ImpalaConfig
from qgraph.rl.agents.registry import learner_for
from qgraph.rl.broadcast import Experience
from qgraph.rl.broadcast.board import Board
from qgraph.rl.broadcast.member import Member
from qgraph.rl.broadcast.weights import WeightSender
from qgraph.rl.environments import make
from qgraph.rl.head import Head
from qgraph.rl.learn.records import record_type
from qgraph.rl.learn.runs import use_threads
from qgraph.rl.learn.sources import RING
from qgraph.rl.learn.worker import ActorWorker

ENVIRONMENT = "CartPole-v1"
HIDDEN = (1024, 1024, 1024)
BITS = (32, 16, 8, 4)
BATCH, UNROLL = 320, 5
STARTING = 120  # seconds that a process may take to start
STEPS, ROUNDS = 300, 5  # of an actor in a round; rounds, of which the median counts


@dataclass(frozen=True)
class ActorCosts:
    """Costs of one actor, and of the blocks that it gets.

    step: a step of policy and environment, with its record; beside: that beside a learner on the
    other processors, with which it shares caches and memory. switch: taking a block. pack: packing
    one. block_bytes: its size.
    """

    bits: int
    step: float
    beside: float
    switch: float
    pack: float
    block_bytes: int


@dataclass(frozen=True)
class RunCosts:
    """Costs of a run that do not depend on the bits.

    learn: a step of the learner with `BATCH` records; beside: that beside an actor. insert: taking
    and storing a record; turn: a turn of the learner without either. copy: handing over weights.
    record_bytes, weight_bytes: sizes.
    """

    learn: float
    learn_beside: float
    insert: float
    turn: float
    copy: float
    record_bytes: int
    weight_bytes: int


def config_of(bits: int, actors: int = 1, steps: int = 10_000) -> ImpalaConfig:
    """The runs that are measured and modelled."""
    return ImpalaConfig(
        ENVIRONMENT,
        steps=steps,
        actors=actors,
        actor_bits=bits,
        hidden_sizes=HIDDEN,
        batch_size=BATCH,
        unroll_length=UNROLL,
        evaluate_every=1_000_000_000,
        episodes=1,
    )


def actor_costs(bits: int) -> ActorCosts:
    """Measure an actor with policies of these bits."""
    program, weights = _policy()
    ends = end_bits(program, bits)
    packer = Packer(program, bits, *ends)
    block = packer.pack(weights)
    actor, out = Actor(block), packer.allocate()
    step = _seconds_of_a_step(bits, block)
    with _neighbour(_learn_for_ever):
        beside = _seconds_of_a_step(bits, block)
    pack = _median(lambda: packer.pack(weights, out=out), time.process_time)
    switch = _median(lambda: actor.switch(block))
    return ActorCosts(bits, step, max(step, beside), switch, pack, len(block))


def run_costs() -> RunCosts:
    """Measure the learner."""
    learn, memory, dtype = _learning()
    program, weights = _policy()
    records = np.zeros(RING, dtype)
    rings = Experience.create(dtype, RING, 1)
    reader, writer, sender = rings.reader(), rings.writer(0), WeightSender(program)

    def insert() -> None:
        writer.put(records)
        memory.add(reader.take(RING))

    packer = Packer(program, 8, *end_bits(program, 8))
    block = packer.pack(weights)
    alone = _median(learn, time.process_time)
    with _neighbour(partial(_step_for_ever, 8, block)):
        beside = _median(learn, time.process_time)
    versions = iter(range(1 << 20))
    return RunCosts(
        alone,
        max(alone, beside),
        _median(insert, time.process_time) / RING,
        _median(lambda: [reader.take(RING) for _ in range(100)], time.process_time) / 100,
        _median(lambda: sender.send(weights, next(versions)), time.process_time),
        dtype.itemsize,
        sum(weight.nbytes for weight in weights.values()),
    )


def _learning() -> tuple[Callable[[], None], Any, Any]:
    """A function that takes one step of a learner; its memory, and the type of a record."""
    import_tensorflow_quietly()
    use_threads(1)
    config = config_of(8)
    with closing(make(ENVIRONMENT)) as environment:
        learner, dtype = learner_for(config, environment), record_type(environment)
    memory, rng = config.memory(dtype), np.random.default_rng(0)
    records = np.zeros(BATCH, dtype)

    def learn() -> None:
        memory.add(records)
        learner.step(memory.sample(BATCH, rng))

    return learn, memory, dtype


def _policy() -> tuple[ActorProgram, dict[str, Array]]:
    from qgraph.rl.learn.networks import actor_critic, initial_weights

    with closing(make(ENVIRONMENT)) as environment:
        shape, actions = environment.shape, environment.actions.count
    program, _ = actor_critic(shape, HIDDEN, actions, 1, layer_norm=False)
    return program, initial_weights(program, np.random.default_rng(0))


def _worker(bits: int, block: Array) -> tuple[ActorWorker, Any, Member]:
    actor = Actor(block)
    worker = ActorWorker(config_of(bits), 0, Head("categorical"), lambda steps: actor)
    rings = Experience.create(worker.dtype, RING, 1)
    return worker, rings, Member(Board.create(1), 0)


def _seconds_of_a_step(bits: int, block: Array) -> float:
    """A step of an actor process, as `qgraph.rl.learn.actor_process` does it."""
    worker, rings, member = _worker(bits, block)
    ring, reader = rings.writer(0), rings.reader()

    def steps() -> None:
        for _ in range(STEPS):
            member.running()
            ring.put(worker.step())
            member.numbers[:5] = (worker.taken, *worker.seconds)
            if worker.taken % RING == 0:
                reader.take(RING)

    with closing(worker):
        return _median(steps) / STEPS


def _step_for_ever(bits: int, block: Array, ready: Event) -> None:
    worker, _, _ = _worker(bits, block)
    ready.set()
    while True:
        worker.step()


def _learn_for_ever(ready: Event) -> None:
    learn, _, _ = _learning()
    learn()
    ready.set()
    while True:
        learn()


@contextmanager
def _neighbour(work: Callable[[Event], None]) -> Iterator[None]:
    """Another process that works meanwhile. It is a new one, since TensorFlow does not fork."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=work, args=(ready,), daemon=True)
    process.start()
    if not ready.wait(STARTING):
        raise RuntimeError(f"the process beside did not start within {STARTING} s")
    try:
        yield
    finally:
        process.kill()
        process.join()


def _median(call: Callable[[], object], clock: Callable[[], float] = time.thread_time) -> float:
    """The median seconds of a processor."""
    times = []
    call()
    for _ in range(ROUNDS):
        begin = clock()
        call()
        times.append(clock() - begin)
    return statistics.median(times)
