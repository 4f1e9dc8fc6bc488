"""A learner's weights as one run of bytes, in the order of the program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.actor.form import ActorProgram

ALIGNMENT = 64


class WeightLayout:
    """Where each weight lies, float32 in C order; `size` bytes in all."""

    def __init__(self, program: ActorProgram) -> None:
        self.program = program
        self._places: dict[str, int] = {}
        at = 0
        for name, shape in program.weight_shapes.items():
            self._places[name] = at
            at += -(-4 * math.prod(shape) // ALIGNMENT) * ALIGNMENT
        self.size = max(at, ALIGNMENT)

    def views(self, room: Array) -> dict[str, Array]:
        """The weights in uint8 [size], where they lie."""
        found = {}
        for name, shape in self.program.weight_shapes.items():
            begin = self._places[name]
            found[name] = room[begin : begin + 4 * math.prod(shape)].view(np.float32).reshape(shape)
        return found

    def write(self, weights: Mapping[str, Any], room: Array) -> None:
        """Copy weights there: arrays, or variables of TensorFlow, which are read where they lie.

        Raises GraphError for those that are missing or do not fit.
        """
        self.program.check(weights)
        for name, place in self.views(room).items():
            np.copyto(place, _in_place(weights[name]))


def _in_place(value: Any) -> Array:
    """As an array, without the copy that a variable's `numpy()` makes."""
    if isinstance(value, np.ndarray):
        return value
    tensor = value.read_value() if hasattr(value, "read_value") else value
    try:
        return np.asarray(memoryview(tensor))
    except (TypeError, BufferError):  # on a GPU, or no tensor of TensorFlow
        return np.asarray(tensor)
