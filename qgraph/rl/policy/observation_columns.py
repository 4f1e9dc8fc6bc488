"""The columns of a policy's observations: parts of a dictionary, and states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor.observations import wrong_shape
from qgraph.rl.actor.program_state import ProgramState, size_of
from qgraph.words import alternatives


@dataclass(frozen=True)
class ObservationPart:
    """One array of an observation: its name in the dictionary, and its shape."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class ObservationColumns:
    """The columns of a program's observation: its parts one after the other, then its states.

    parts: one for each array; a single one for observations that are not dictionaries.
    """

    parts: tuple[ObservationPart, ...]
    states: tuple[ProgramState, ...] = ()

    @property
    def observed(self) -> int:
        """The numbers of an observation without states."""
        return sum(part.size for part in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation without states, as an array."""
        return self.parts[0].shape if len(self.parts) == 1 else (self.observed,)

    def array(self, observations: Array | Mapping[str, Array]) -> Array:
        """Observations as one array, float32 [n, *shape], or [*shape] for a single one.

        Raises UsageError for a dictionary with other names or shapes.
        """
        if not isinstance(observations, Mapping):
            return np.asarray(observations, np.float32)
        names = [part.name for part in self.parts]
        if set(observations) != set(names):
            raise UsageError(
                f"the observation has {alternatives([*observations]) or 'no parts'}",
                hint=f"the policy takes {alternatives(names)}",
            )
        found = {name: np.asarray(observations[name], np.float32) for name in names}
        alone = all(found[part.name].shape == part.shape for part in self.parts)
        for part in self.parts:
            x = found[part.name]
            if not alone and x.shape[1:] != part.shape:
                raise wrong_shape(x.shape, part.shape, part.name)
        if len(self.parts) == 1:
            return found[names[0]]
        front = () if alone else (-1,)
        sizes = {len(x) for x in found.values()} if not alone else {1}
        if len(sizes) > 1:
            raise UsageError(f"the parts of observations have {sorted(sizes)} samples")
        flat = [found[part.name].reshape(*front, part.size) for part in self.parts]
        return np.concatenate(flat, -1)

    def first_states(self, count: int) -> Array:
        """States at the beginning of episodes: zeros, float32 [count, size]."""
        return np.zeros((count, size_of(self.states)), np.float32)

    def joined(self, observations: Array, states: Array) -> Array:
        """The rows [n, columns] that the program takes."""
        return np.concatenate([observations.reshape(len(observations), -1), states], -1)

    def feeds(self, rows: Array) -> dict[str, Array]:
        """Rows [n, columns] as one array for each part and each state, by name."""
        found, at = dict[str, Array](), 0
        for part in (*self.parts, *(ObservationPart(s.name, (s.size,)) for s in self.states)):
            found[part.name] = rows[:, at : at + part.size].reshape(-1, *part.shape)
            at += part.size
        return found


def part_of(shape: Sequence[int], name: str) -> tuple[ObservationPart, ...]:
    """The parts of observations that are one array."""
    return (ObservationPart(name, tuple(shape)),)
