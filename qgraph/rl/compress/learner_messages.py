"""Messages from a learner to its compressor: facts, and observations of its actors."""

from __future__ import annotations

import math
from dataclasses import astuple, fields

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.broadcast import Channel
from qgraph.rl.monitor import LearnerFacts

ROWS = 2048  # the most observations
BYTES = 1 << 24  # the most bytes of observations
HEAD = 128  # bytes of the facts and of the number of observations
NUMBERS = len(fields(LearnerFacts)) + 1


def rows_for(shape: tuple[int, ...]) -> int:
    """The number of observations of a shape that a message holds."""
    return max(1, min(ROWS, BYTES // (4 * math.prod(shape))))


class Sample:
    """A sample of all observations so far; a new one replaces a random one.

    It reaches back at least about as many observations as it holds. `observations()` is float32
    [n, *shape], or None before the first.
    """

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        self._rows = np.zeros((rows_for(shape), *shape), np.float32)
        self._size = 0
        self._rng = np.random.default_rng(seed)

    def add(self, observations: Array) -> None:
        """Add observations [..., *shape]."""
        added = observations.reshape(-1, *self._rows.shape[1:])[-len(self._rows) :]
        fresh = min(len(added), len(self._rows) - self._size)
        self._rows[self._size : self._size + fresh] = added[:fresh]
        self._size += fresh
        places = self._rng.choice(len(self._rows), len(added) - fresh, replace=False)
        self._rows[places] = added[fresh:]

    def observations(self) -> Array | None:
        return self._rows[: self._size] if self._size else None


class MessageSender:
    """The learner's end, for observations of one shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        size = HEAD + 4 * rows_for(shape) * math.prod(shape)
        self._channel = Channel.create(size, readers=1)
        self._writer = self._channel.writer()

    @property
    def channel(self) -> str:
        """The channel that the compressor's `MessageReceiver` opens."""
        return self._channel.name

    def send(self, facts: LearnerFacts, observations: Array | None) -> None:
        """Hand over a copy of the message, without waiting."""
        block = self._writer.next_block()
        observations = (
            np.zeros((0, *self._shape), np.float32) if observations is None else observations
        )
        numbers = (*astuple(facts), len(observations))
        block[: 8 * len(numbers)].view(np.float64)[:] = numbers
        block[HEAD : HEAD + observations.nbytes].view(np.float32)[:] = observations.ravel()
        self._writer.publish(self._writer.version + 1)


class MessageReceiver:
    """The compressor's end."""

    def __init__(self, channel: str, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._reader = Channel.attach(channel, 0)
        self._latest: tuple[LearnerFacts, Array | None] = (LearnerFacts(), None)

    def latest(self) -> tuple[LearnerFacts, Array | None]:
        """The latest message. The observations [n, *shape] are valid until the next call."""
        message = self._reader.latest()
        if message is not None:
            *facts, count = message[: 8 * NUMBERS].view(np.float64).tolist()
            size = 4 * int(count) * math.prod(self._shape)
            observations = message[HEAD : HEAD + size].view(np.float32).reshape(-1, *self._shape)
            self._latest = (
                LearnerFacts(int(facts[0]), *facts[1:]),
                observations if len(observations) else None,
            )
        return self._latest
