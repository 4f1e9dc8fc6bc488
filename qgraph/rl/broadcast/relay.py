"""Actors on a machine without a learner: the same channel and rings, filled from remote.

A `Relay` does not depend on how bytes travel between it and the learner's machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from qgraph.rl.broadcast.channel import Channel
from qgraph.rl.broadcast.experience import Experience, form_of, read_form
from qgraph.rl.broadcast.subscriber import BlockSource
from qgraph.rl.broadcast.supervisor import Supervisor

WAIT = 0.01  # seconds of waiting for records


class Relay:
    """The actors of one machine, as processes of this one.

    form: the dtype of a record (`form_of`), as JSON. block_size: bytes of a block. capacity:
    records in each ring. module: the module that each actor runs. settings: the settings of each
    actor (JSON), to which `policy` (a `BlockSource`) and `records` (a `RingPlace`) are added.
    environment: environment variables of actors. restarts: how often each actor may crash. numbers:
    the numbers of earlier actors in their places, if there were any.
    """

    def __init__(
        self,
        form: str,
        block_size: int,
        capacity: int,
        module: str,
        settings: Sequence[str],
        environment: Mapping[str, str],
        restarts: int,
        numbers: Sequence[Sequence[float]] = (),
    ) -> None:
        count = len(settings)
        self._run = Supervisor(count)
        if numbers:
            self._run.board.rows["numbers"][:] = numbers
        self._blocks = Channel.create(block_size, count)
        self._writer = self._blocks.writer()
        self._rings = Experience.create(read_form(json.loads(form)), capacity, count)
        self._reader = self._rings.reader()
        for number, text in enumerate(settings):
            name = self._blocks.name
            # A synchronous actor can wait only for the latest block on this machine.
            policy = BlockSource(name, name, number, on_demand=True)
            places = {"policy": policy, "records": self._rings.settings(number)}
            on_release = partial(self._blocks.clear, number)
            self._run.start(
                f"actor {number}",
                module,
                {**json.loads(text), **places},
                restarts=restarts,
                on_release=on_release,
                environment=environment,
            )

    def exchange(
        self, block: bytes, version: int, count: int
    ) -> tuple[bytes, bool, int, list[list[float]]]:
        """Take a block if it is newer, and give up to `count` records.

        Returns records, whether an actor has asked for a block, how often actors crashed, and the
        numbers of each actor. Raises RunError for an actor that crashed too often.
        """
        self._run.check()
        if version > self._writer.version:
            self._writer.next_block()[:] = np.frombuffer(block, np.uint8)
            self._writer.publish(version)
        records = self._reader.take(count, WAIT if count else 0.0)
        crashes = sum(len(child.crashes) for child in self._run.children.values())
        numbers = self._run.board.rows["numbers"].tolist()
        return records.tobytes(), self._writer.requested(), crashes, numbers

    def stop(self) -> None:
        """End the actors."""
        self._run.stop()


def form_text(rings: Experience) -> str:
    """The form of a record as text, for `Relay`."""
    return json.dumps(form_of(rings.dtype))
