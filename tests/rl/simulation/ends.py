"""The ends of a channel and of rings alone, each in a process that may die at any step.

A writer publishes blocks whose bytes all equal their version. Readers take and read them slowly.
Each puts numbered records into its ring. A process that dies begins again.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.broadcast import Channel, Experience
from tests.rl.simulation.scheduler import Dangers, SimulatedTask, TurnScheduler
from tests.rl.simulation.simulated_machine import shared_memory

READERS, SIZE, VERSIONS, RECORDS = 2, 24, 12, 6
RECORD = np.dtype([("reader", "i8"), ("number", "i8"), ("copies", "i8", 4)])
SECONDS = 5.0  # of virtual time; a schedule needs about one


@dataclass
class Ends:
    """One schedule."""

    scheduler: TurnScheduler
    done: list[bool] = field(default_factory=lambda: [False] * READERS)
    got: list[int] = field(default_factory=lambda: [0] * READERS)  # records of each reader

    def run(self) -> None:
        """Start all processes, restart those that die, and take the records."""
        self.channel = Channel.create(SIZE, READERS)
        self.rings = Experience.create(RECORD, capacity=3, writers=READERS)
        ends = {"writer": self._write} | {
            f"reader {i}": partial(self._read, i) for i in range(READERS)
        }
        tasks = {name: self.scheduler.spawn(name, end) for name, end in ends.items()}
        reader = self.rings.reader()
        while min(self.got) < RECORDS or not all(self.done):
            self._check(reader.take(4, 0.01))
            for name, task in tasks.items():
                if task.code is not None and task.code != 0:
                    self._release(name, task)
                    tasks[name] = self.scheduler.spawn(name, ends[name])

    def _release(self, name: str, task: SimulatedTask) -> None:
        if task.error:
            self.scheduler.fail(task.error)
        if name.startswith("reader"):
            self.channel.clear(int(name[-1]))

    def _write(self) -> None:
        writer = self.channel.writer()
        while writer.version < VERSIONS:
            version = writer.version + 1
            writer.next_block()[:] = version
            writer.publish(version)
            if version % 4 == 0:
                writer.wait_requested(0.02)
                writer.requested()

    def _read(self, number: int) -> None:
        reader, ring = self.channel.reader(number), self.rings.writer(number)
        count = self.rings.written(number)
        block = np.full(SIZE, -1)
        while reader.version < VERSIONS or count < RECORDS:
            if reader.wait(reader.version + 1, 0.01):
                before = reader.version
                newer = reader.latest()
                if newer is None or reader.version <= before:
                    self.scheduler.fail(f"a version after {before} was announced, but is missing")
                    return
                block = newer
            self._whole(block, reader.version)
            reader.request()
            record = np.zeros((), RECORD)
            record["reader"], record["number"], record["copies"] = number, count, count
            count += ring.put(record, 0.01)
        self.done[number] = True

    def _whole(self, block: Array, version: int) -> None:
        """Fail unless all bytes of a block are its version, read one after the other."""
        for i in range(0, SIZE, 6):
            self.scheduler.step()
            if set(block[i : i + 6].tolist()) != {version}:
                self.scheduler.fail(f"a block of version {version} is {block.tolist()}")

    def _check(self, records: Array) -> None:
        """Fail unless records are whole and in order, none twice and none missing."""
        for record in records:
            reader, number, copies = record.tolist()
            if set(copies) != {number}:
                self.scheduler.fail(f"a record is torn: {record}")
            if number != self.got[reader]:
                self.scheduler.fail(f"record {record} comes after {self.got} records")
            self.got[reader] += 1


def run_ends(seed: int, library: ctypes.PyDLL) -> TurnScheduler:
    """Run one schedule. Raises ScheduleFault."""
    scheduler = TurnScheduler(seed, Dangers(between=60, longest_pause=0.05), SECONDS)
    with shared_memory(scheduler, library):
        scheduler.run("supervisor", Ends(scheduler).run)
    return scheduler
