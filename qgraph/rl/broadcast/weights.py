"""A learner's weights in shared memory: the quantizer packs one while the next is copied."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.errors import GraphError, UsageError
from qgraph.foreign import Variable
from qgraph.ir.types import Array
from qgraph.rl.actor.program import ActorProgram
from qgraph.rl.broadcast.channel import Channel
from qgraph.rl.broadcast.member import Member

ALIGNMENT = 64


class WeightLayout:
    """The place of each weight, float32 in C order, in the program's order.

    size: bytes of all, with padding. content: bytes without padding.
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

    def views(self, memory: Array) -> dict[str, Array]:
        """Views of the weights in uint8 [size]."""
        views = {}
        for name, shape in self.program.weight_shapes.items():
            begin = self._places[name]
            views[name] = (
                memory[begin : begin + 4 * math.prod(shape)].view(np.float32).reshape(shape)
            )
        return views


@dataclass(frozen=True)
class WeightChannels:
    """The names of two channels: weights, and which of them have arrived."""

    weights: str
    arrivals: str


class WeightSender:
    """The learner's end.

    A buffer is published when a quarter of it is filled: packing is slower than copying, so the
    quantizer does not have to wait again. A second channel counts the weights that have arrived.
    """

    def __init__(self, program: ActorProgram) -> None:
        self._layout = WeightLayout(program)
        self._weights = Channel.create(self._layout.size, readers=1)
        self._arrivals = Channel.create(ALIGNMENT, readers=1)
        self._writer, self._arrived = self._weights.writer(), self._arrivals.writer()

    @property
    def channels(self) -> WeightChannels:
        """The channels that the quantizer's `WeightReceiver` opens."""
        return WeightChannels(self._weights.name, self._arrivals.name)

    @property
    def version(self) -> int:
        """The latest version that was sent; -1 before the first."""
        return self._writer.version

    def send(self, weights: Mapping[str, Variable], version: int) -> None:
        """Copy weights into the channel: arrays, or variables of TensorFlow, read in place.

        Raises GraphError for weights that are missing or do not fit, UsageError unless versions
        grow; nothing is sent then.
        """
        layout = self._layout
        layout.program.check(weights)
        values = {name: in_place(name, weights[name]) for name in layout.program.weight_shapes}
        if version <= self.version:
            raise UsageError(f"version {version} after version {self.version}: versions must grow")
        places, done = layout.views(self._writer.next_block()), 0
        for i, (name, place) in enumerate(places.items()):
            np.copyto(place, values[name])
            self._arrived.next_block()
            self._arrived.publish(version * len(places) + i)
            done += place.nbytes
            if version > self.version and 4 * done >= layout.content:
                self._writer.publish(version)


class WeightReceiver:
    """The quantizer's end, in the process `member` of a run."""

    def __init__(self, program: ActorProgram, channels: WeightChannels, member: Member) -> None:
        self._layout = WeightLayout(program)
        self._weights = Channel.attach(channels.weights, 0)
        self._arrivals = Channel.attach(channels.arrivals, 0)
        self._member = member
        self._numbers = {name: i for i, name in enumerate(program.weight_shapes)}

    @property
    def version(self) -> int:
        """The version of the weights that were taken last."""
        return self._weights.version

    def wait(self) -> bool:
        """Wait until there are newer weights; False if the run ends."""
        return self._member.wait(lambda seconds: self._weights.wait(self.version + 1, seconds))

    def take(self) -> dict[str, Array]:
        """The latest weights; call `arrived` before reading one of them."""
        latest = self._weights.latest()
        assert latest is not None, "call wait() first"
        return self._layout.views(latest)

    def arrived(self, name: str) -> None:
        """Wait until a weight has arrived. Raises RunEnded."""
        number = self.version * len(self._numbers) + self._numbers[name]
        if not self._member.wait(lambda seconds: self._arrivals.wait(number, seconds)):
            raise RunEnded


class RunEnded(Exception):
    """The run ended while a process waited."""


def in_place(name: str, value: Variable) -> Array:
    """A weight, an array or a variable, as an array without the copy of a variable's `numpy()`."""
    array: Array = value if isinstance(value, np.ndarray) else _array_of(value)
    if not np.can_cast(array.dtype, np.float32, "same_kind"):
        raise GraphError(f"the weight has type {array.dtype}, not float32", node=name)
    return array


def _array_of(value: Variable) -> Array:
    tensor = value.read_value() if hasattr(value, "read_value") else value
    try:
        return np.asarray(memoryview(tensor))
    except (TypeError, BufferError):  # on a GPU, or not a tensor of TensorFlow
        return np.asarray(tensor)
