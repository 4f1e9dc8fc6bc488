"""Observations of several parts, or of choices, as one row of numbers.

A dictionary becomes its parts one after the other, in the order of the space. Choices are one-hot,
as stable-baselines3 and gymnasium's `flatten` encode them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.foreign import GymObject
from qgraph.ir.types import Array
from qgraph.words import alternatives

VECTORS = 2  # arrays with more axes are images, which do not fit beside other numbers


@dataclass(frozen=True)
class FlatPart:
    """A part of an observation.

    name: its key, empty for an observation that is not a dictionary. shape: of its array. options:
    the number of options of each of its choices; empty for numbers.
    """

    name: str
    shape: tuple[int, ...]
    options: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """How many numbers it becomes."""
        return sum(self.options) if self.options else int(np.prod(self.shape))

    def rows(self, values: Array) -> Array:
        """Values [n, *shape] as numbers, float32 [n, size]."""
        given = np.asarray(values)
        flat = given.reshape(given.shape[0], -1)
        if not self.options:
            return flat.astype(np.float32)
        eyes = [np.eye(count, dtype=np.float32) for count in self.options]
        return np.concatenate([eye[flat[:, i]] for i, eye in enumerate(eyes)], -1)


@dataclass(frozen=True)
class FlatSpace:
    """The parts of an observation space, in order."""

    parts: tuple[FlatPart, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def rows(self, observations: Array | Mapping[str, Array]) -> Array:
        """Observations with an axis of samples in front, float32 [n, size]."""
        if not isinstance(observations, Mapping):
            return self.parts[0].rows(observations)
        return np.concatenate([part.rows(observations[part.name]) for part in self.parts], -1)

    def row(self, observation: Array | Mapping[str, Array]) -> Array:
        """One observation, float32 [size]."""
        if isinstance(observation, Mapping):
            rows = self.rows({name: np.asarray(x)[None] for name, x in observation.items()})
        else:
            rows = self.rows(np.asarray(observation)[None])
        return np.asarray(rows[0])


def flat_space(space: GymObject) -> FlatSpace | None:
    """The parts of a space of gymnasium; None for a space that is one array of numbers.

    Raises ValueError with the reason for a space that is not supported.
    """
    if hasattr(space, "spaces") and isinstance(space.spaces, Mapping):
        return FlatSpace(tuple(_part(name, part) for name, part in space.spaces.items()))
    return None if hasattr(space, "low") else FlatSpace((_part("", space),))


def _part(name: str, space: GymObject) -> FlatPart:
    shape = tuple(getattr(space, "shape", None) or ())
    if hasattr(space, "low"):
        if len(shape) > VECTORS:
            raise ValueError(f"part `{name}` is an image of shape {list(shape)}")
        return FlatPart(name, shape)
    if hasattr(space, "nvec") and len(shape) == 1 and not np.any(space.start):
        return FlatPart(name, shape, tuple(int(count) for count in space.nvec))
    if hasattr(space, "n") and shape == () and int(getattr(space, "start", 0)) == 0:
        return FlatPart(name, (), (int(space.n),))
    if hasattr(space, "n") and len(shape) >= 1:  # switches
        return FlatPart(name, shape)
    kinds = alternatives(["numbers", "one of several", "several choices", "switches"])
    raise ValueError(f"part `{name}` is {space}; parts are {kinds}")
