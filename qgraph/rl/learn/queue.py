"""A queue of trajectories, and rollouts of single steps: each step is used once."""

from __future__ import annotations

from collections import deque

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.learn.replay import Batch


class TrajectoryQueue:
    """Joins single steps of each actor to trajectories of n steps. Its size is not limited.

    A trajectory may continue into the next episode; `follows` finds these places.
    """

    def __init__(self, n: int, dtype: np.dtype[np.void]) -> None:
        self.n, self.dtype = n, dtype
        self.complete: deque[Array] = deque()  # trajectories [n], the oldest first
        self.incomplete: dict[int, Array] = {}  # steps of an actor in an incomplete trajectory

    def __len__(self) -> int:
        """The number of steps."""
        return self.n * len(self.complete) + sum(map(len, self.incomplete.values()))

    @property
    def nbytes(self) -> int:
        return len(self) * self.dtype.itemsize

    def add(self, records: Array) -> None:
        """Add single steps; those of one actor in their order."""
        for actor in np.unique(records["actor"]).tolist():
            steps = records[records["actor"] == actor]
            if actor in self.incomplete:
                steps = np.concatenate([self.incomplete[actor], steps])
            end = len(steps) // self.n * self.n
            self.complete.extend(steps[:end].reshape(-1, self.n))
            self.incomplete[actor] = steps[end:]

    def sample(self, count: int, rng: np.random.Generator) -> Batch:
        """Take out the oldest trajectories with `count` steps in all, [n, count / n]."""
        taken = np.stack([self.complete.popleft() for _ in range(count // self.n)], axis=1)
        return Batch(taken, np.arange(count), np.ones(count, np.float32))

    def update(self, places: Array, priorities: Array) -> None:
        """Do nothing: no step is sampled again."""

    def state(self) -> dict[str, Array]:
        empty = np.empty((0, self.n), self.dtype)
        return {
            "whole": np.concatenate([empty, *(one[None] for one in self.complete)]),
            "begun": np.concatenate([empty[:, 0], *self.incomplete.values()]),
        }

    def restore(self, state: dict[str, Array]) -> None:
        self.complete = deque(state["whole"])
        self.incomplete = {}
        self.add(state["begun"])


class RolloutMemory:
    """Single steps of all actors, taken out in the order of arrival, and then sorted by actor.

    It is not part of a checkpoint: a resumed run begins with another rollout, as its actors begin
    with other episodes.
    """

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self.dtype = dtype
        self.parts: list[Array] = []  # steps, the oldest first

    def __len__(self) -> int:
        """The number of steps."""
        return sum(map(len, self.parts))

    @property
    def nbytes(self) -> int:
        return len(self) * self.dtype.itemsize

    def add(self, records: Array) -> None:
        """Add single steps; those of one actor in their order."""
        self.parts.append(records)

    def sample(self, count: int, rng: np.random.Generator) -> Batch:
        """Take out the oldest `count` steps, [count], by actor."""
        steps = np.concatenate(self.parts)
        taken, self.parts = steps[:count], [steps[count:].copy()]
        taken = taken[np.argsort(taken["actor"], kind="stable")]
        return Batch(taken, np.arange(count), np.ones(count, np.float32))

    def update(self, places: Array, priorities: Array) -> None:
        """Do nothing: no step is sampled again."""

    def state(self) -> dict[str, Array]:
        return {}

    def restore(self, state: dict[str, Array]) -> None:
        """Do nothing: `state` is empty."""


def follows(records: Array) -> Array:
    """1 if a step [n, b] or [n] is followed by the next one of its episode, float32.

    It is 0 in the last row.

    Between two steps an episode may have ended, or an actor may have been restarted: then the
    second step does not begin in the state after the first one.
    """
    followed = np.zeros(records.shape, np.float32)
    same_actor = records["actor"][:-1] == records["actor"][1:]
    continues = records["next_observation"][:-1] == records["observation"][1:]
    continues = continues.all(tuple(range(records.ndim, continues.ndim)))
    followed[:-1] = same_actor & continues & (records["length"][:-1] == 0)
    return followed
