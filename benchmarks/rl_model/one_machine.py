"""The model of a run on one machine: learner, quantizer and actors share its processors.

The limiter is the real one. Processors are given in turns of at most `SLICE` seconds to those that
want one, among them `foreign` processes of others that never rest.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from benchmarks.rl_model.costs import ActorCosts, RunCosts
from qgraph.rl.agents.impala.config import ImpalaConfig
from qgraph.rl.learn.sources import ring_capacity
from qgraph.rl.learn.training import MAX_WAIT

SLICE = 0.003  # seconds
Steps = Generator[Any, Any, None]  # events of simpy


class Processors:
    """Processors that are given to the process that had least of them, as Linux does."""

    def __init__(self, clock: simpy.Environment, count: int) -> None:
        self.clock, self.turns = clock, simpy.PriorityResource(clock, count)
        self.floor = 0.0  # seconds that the process had which got the last turn

    def process(self) -> ProcessTime:
        """A process that works on them."""
        return ProcessTime(self)


class ProcessTime:
    """The processor seconds of a process. One that has slept does not make up for all of it."""

    def __init__(self, processors: Processors) -> None:
        self._processors, self._had = processors, 0.0

    def work(self, seconds: float, beside: float | None = None) -> Steps:
        """Work for that many seconds of a processor; `beside` if another one is busy."""
        processors, done = self._processors, 0.0
        while done < 1.0 - 1e-9:
            self._had = max(self._had, processors.floor - SLICE)
            with processors.turns.request(int(self._had * 1e9)) as turn:
                yield turn
                processors.floor = max(processors.floor, self._had)
                busy = beside is not None and processors.turns.count > 1
                cost = beside if busy and beside is not None else seconds
                share = min(1.0 - done, SLICE / cost) if cost > 0 else 1.0
                yield processors.clock.timeout(share * cost)
                self._had += share * cost
                done += share


@dataclass
class MachineModel:
    """One run. After `run`: steps a second, and the mean staleness in learner steps."""

    config: ImpalaConfig
    actor: ActorCosts
    costs: RunCosts
    processors: int
    foreign: int = 0
    rate: float = 0.0
    staleness: float = 0.0

    clock: simpy.Environment = field(default_factory=simpy.Environment)

    def run(self, seconds: float) -> MachineModel:
        """Run the model; the first fifth of the time does not count."""
        clock, actors = self.clock, self.config.actors
        self._cpu = Processors(clock, self.processors)
        self._limiter = self.config.limiter()
        self._waiting = [0] * actors  # records in each ring
        self._capacity = ring_capacity(self.config, self.costs.record_bytes, actors)
        self._published = self._packed = self._learned = 0
        self._age = self._steps = 0
        self._filled, self._freed, self._given = clock.event(), clock.event(), clock.event()
        clock.process(self._learner())
        clock.process(self._quantizer())
        for number in range(actors):
            clock.process(self._actor(number))
        for _ in range(self.foreign):
            clock.process(self._other())
        clock.run(seconds / 5)
        begin, self._age, self._steps = self._limiter.inserts, 0, 0
        clock.run(seconds)
        self.rate = (self._limiter.inserts - begin) / (0.8 * seconds)
        self.staleness = self._age / max(self._steps, 1)
        return self

    def _learner(self) -> Steps:
        limiter, costs, own = self._limiter, self.costs, self._cpu.process()
        while True:
            count = min(limiter.may_insert(), sum(self._waiting))
            yield from own.work(costs.turn + costs.insert * count)
            self._take(count)
            limiter.insert(count)
            if limiter.may_sample():
                limiter.sample()
                yield from own.work(costs.learn, costs.learn_beside)
                self._learned += 1
                if self._learned % self.config.publish_every == 0:
                    yield from own.work(costs.copy)
                    self._published = self._learned
                    self._given = self._rung(self._given)
            elif count == 0:
                yield self._filled | self.clock.timeout(MAX_WAIT)

    def _take(self, count: int) -> None:
        """Take records of all actors in turn."""
        while count:
            for number, there in enumerate(self._waiting):
                taken = min(there, -(-count // len(self._waiting)))
                taken = min(taken, count)
                self._waiting[number] -= taken
                count -= taken
        self._freed = self._rung(self._freed)

    def _quantizer(self) -> Steps:
        own = self._cpu.process()
        while True:
            while self._packed == self._published:
                yield self._given
            version = self._published
            yield from own.work(self.actor.pack)
            self._packed = version

    def _actor(self, number: int) -> Steps:
        version, period, costs = 0, self.config.actor_update_period, self.actor
        own = self._cpu.process()
        while True:
            if self._packed > version:
                yield from own.work(costs.switch)
                version = self._packed
            yield from own.work(period * costs.step, period * costs.beside)
            while self._waiting[number] > self._capacity - period:
                yield self._freed
            self._waiting[number] += period
            self._age += (self._learned - version) * period
            self._steps += period
            self._filled = self._rung(self._filled)

    def _other(self) -> Steps:
        own = self._cpu.process()
        while True:
            yield from own.work(SLICE)

    def _rung(self, event: simpy.Event) -> simpy.Event:
        """Wake all that wait, and return the event for the next time."""
        event.succeed()
        return self.clock.event()
