"""Notes from a learner to its compressor beside weights: facts, and observations of its actors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, fields
from typing import Any

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.broadcast import Channel
from qgraph.rl.monitor import LearnerFacts

ROWS = 2048  # observations at most
BYTES = 1 << 24  # of them at most
HEAD = 128  # bytes of the facts and of the number of observations
NUMBERS = len(fields(LearnerFacts)) + 1


def rows_for(shape: tuple[int, ...]) -> int:
    """How many observations of that shape are told."""
    return max(1, min(ROWS, BYTES // (4 * math.prod(shape))))


class Sample:
    """A sample of all observations so far, in which a new one takes the place of any other.

    So it reaches back about as many observations as it holds, and further. `seen()` is float32
    [n, *shape], None before the first.
    """

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        self._rows = np.zeros((rows_for(shape), *shape), np.float32)
        self._size = 0
        self._rng = np.random.default_rng(seed)

    def add(self, observations: Array) -> None:
        """[..., *shape]"""
        found = observations.reshape(-1, *self._rows.shape[1:])[-len(self._rows) :]
        fresh = min(len(found), len(self._rows) - self._size)
        self._rows[self._size : self._size + fresh] = found[:fresh]
        self._size += fresh
        places = self._rng.choice(len(self._rows), len(found) - fresh, replace=False)
        self._rows[places] = found[fresh:]

    def seen(self) -> Array | None:
        return self._rows[: self._size] if self._size else None


class NoteSender:
    """The learner's end, for observations of one shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        size = HEAD + 4 * rows_for(shape) * math.prod(shape)
        self._channel = Channel.create(size, readers=1)
        self._writer = self._channel.writer()

    def settings(self) -> dict[str, Any]:
        """The argument of the other process's `NoteReceiver`, as JSON."""
        return {"notes": self._channel.name}

    def send(self, facts: LearnerFacts, observations: Array | None) -> None:
        """Hand over a copy of them; waits for nobody."""
        room = self._writer.room()
        found = np.zeros((0, *self._shape), np.float32) if observations is None else observations
        numbers = (*astuple(facts), len(found))
        room[: 8 * len(numbers)].view(np.float64)[:] = numbers
        room[HEAD : HEAD + found.nbytes].view(np.float32)[:] = found.ravel()
        self._writer.publish(self._writer.version + 1)


class NoteReceiver:
    """The compressor's end."""

    def __init__(self, settings: Mapping[str, Any], shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._reader = Channel.attach(settings["notes"], 0)
        self._latest: tuple[LearnerFacts, Array | None] = (LearnerFacts(), None)

    def latest(self) -> tuple[LearnerFacts, Array | None]:
        """The latest notes; the observations [n, *shape] where they lie, until the next call."""
        found = self._reader.latest()
        if found is not None:
            *facts, count = found[: 8 * NUMBERS].view(np.float64).tolist()
            size = 4 * int(count) * math.prod(self._shape)
            seen = found[HEAD : HEAD + size].view(np.float32).reshape(-1, *self._shape)
            self._latest = LearnerFacts(int(facts[0]), *facts[1:]), seen if len(seen) else None
        return self._latest
