"""A learner's weights on their way to the quantizer, which packs one while the next is copied."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from qgraph.errors import GraphError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor.program import ActorProgram
from qgraph.rl.broadcast.channel import Channel
from qgraph.rl.broadcast.member import Member

ALIGNMENT = 64


class WeightLayout:
    """The place of each weight, float32 in C order, in the program's order.

    It takes `size` bytes, `content` of them with something in.
    """

    def __init__(self, program: ActorProgram) -> None:
        self.program = program
        self._places: dict[str, int] = {}
        at = 0
        for name, shape in program.weight_shapes.items():
            self._places[name] = at
            at += -(-4 * math.prod(shape) // ALIGNMENT) * ALIGNMENT
        self.size = max(at, ALIGNMENT)
        self.content = sum(4 * math.prod(shape) for shape in program.weight_shapes.values())

    def views(self, room: Array) -> dict[str, Array]:
        """The weights in uint8 [size], where they lie."""
        found = {}
        for name, shape in self.program.weight_shapes.items():
            begin = self._places[name]
            found[name] = room[begin : begin + 4 * math.prod(shape)].view(np.float32).reshape(shape)
        return found


class WeightSender:
    """The learner's end.

    A buffer is published when a quarter of it is filled, so that who packs it, more slowly than it
    is copied, need not sleep again; a second channel tells how far that has come.
    """

    def __init__(self, program: ActorProgram) -> None:
        self._layout = WeightLayout(program)
        self._weights = Channel.create(self._layout.size, readers=1)
        self._arrivals = Channel.create(ALIGNMENT, readers=1)
        self._writer, self._clock = self._weights.writer(), self._arrivals.writer()

    def settings(self) -> dict[str, str]:
        """The argument of the quantizer's `WeightReceiver`, as JSON."""
        return {"weights": self._weights.name, "arrivals": self._arrivals.name}

    @property
    def version(self) -> int:
        """The latest that was sent; -1 before the first."""
        return self._writer.version

    def send(self, weights: Mapping[str, Any], version: int) -> None:
        """Copy weights there: arrays, or variables of TensorFlow, which are read where they lie.

        Raises GraphError for those that are missing or do not fit, UsageError unless versions
        grow; nothing is sent then.
        """
        layout = self._layout
        layout.program.check(weights)
        values = {name: in_place(name, weights[name]) for name in layout.program.weight_shapes}
        if version <= self.version:
            raise UsageError(f"version {version} after version {self.version}")
        places, done = layout.views(self._writer.room()), 0
        for i, (name, place) in enumerate(places.items()):
            np.copyto(place, values[name])
            self._clock.room()
            self._clock.publish(version * len(places) + i)
            done += place.nbytes
            if version > self.version and 4 * done >= layout.content:
                self._writer.publish(version)


class WeightReceiver:
    """The quantizer's end, which is process `member` of a run."""

    def __init__(self, program: ActorProgram, settings: Mapping[str, Any], member: Member) -> None:
        self._layout = WeightLayout(program)
        self._weights = Channel.attach(settings["weights"], 0)
        self._arrivals = Channel.attach(settings["arrivals"], 0)
        self._member = member
        self._numbers = {name: i for i, name in enumerate(program.weight_shapes)}

    @property
    def version(self) -> int:
        """That of the weights at hand."""
        return self._weights.version

    def wait(self) -> bool:
        """Until there are newer weights; False where the run ends."""
        return self._member.wait(lambda seconds: self._weights.wait(self.version + 1, seconds))

    def take(self) -> dict[str, Array]:
        """The latest; `arrived` has to be called before one is read."""
        found = self._weights.latest()
        assert found is not None, "wait() says when"
        return self._layout.views(found)

    def arrived(self, name: str) -> None:
        """Wait until that weight is there. Raises RunEnded."""
        moment = self.version * len(self._numbers) + self._numbers[name]
        if not self._member.wait(lambda seconds: self._arrivals.wait(moment, seconds)):
            raise RunEnded


class RunEnded(Exception):
    """While something was waited for."""


def in_place(name: str, value: Any) -> Array:
    """A weight as an array, without the copy that a variable's `numpy()` makes."""
    found: Array = value
    if not isinstance(value, np.ndarray):
        tensor = value.read_value() if hasattr(value, "read_value") else value
        try:
            found = np.asarray(memoryview(tensor))
        except (TypeError, BufferError):  # on a GPU, or no tensor of TensorFlow
            found = np.asarray(tensor)
    if not np.can_cast(found.dtype, np.float32, "same_kind"):
        raise GraphError(f"is a weight of {found.dtype}, not float32", node=name)
    return found
