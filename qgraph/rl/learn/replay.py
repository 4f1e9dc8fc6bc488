"""Replay: a ring of transitions, sampled uniformly or by priority."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qgraph.ir.types import Array


@dataclass(frozen=True)
class Batch:
    """Sampled transitions, their places, and their weights in the loss (at most 1)."""

    records: Array
    places: Array
    importance: Array


class Replay:
    """The newest `capacity` transitions.

    alpha: samples are drawn by priority ** alpha (Schaul et al., 2016); 0 is uniform.
    beta: how far importance weights correct that.
    """

    def __init__(
        self, capacity: int, dtype: np.dtype[np.void], alpha: float = 0.0, beta: float = 0.4
    ) -> None:
        self.records, self.dtype = np.zeros(capacity, dtype), dtype
        self.alpha, self.beta = alpha, beta
        self.size = self.next = 0
        self.max_priority = 1.0  # priority of transitions that were not sampled yet
        self.tree = SumTree(capacity) if alpha else None

    def __len__(self) -> int:
        return self.size

    @property
    def nbytes(self) -> int:
        """Bytes of the stored transitions."""
        return self.size * self.records.itemsize

    def add(self, records: Array) -> None:
        """Add transitions, at most `capacity` at once."""
        capacity = len(self.records)
        places = (self.next + np.arange(len(records))) % capacity
        self.records[places] = records
        self.next = int(self.next + len(records)) % capacity
        self.size = min(capacity, self.size + len(records))
        if self.tree is not None:
            self.tree.set(places, np.full(len(places), self.max_priority**self.alpha))

    def sample(self, count: int, rng: np.random.Generator) -> Batch:
        if self.tree is None:
            places = rng.integers(self.size, size=count)
            return Batch(self.records[places], places, np.ones(count, np.float32))
        # One from each of `count` equal parts of the sum.
        shares = (np.arange(count) + rng.random(count)) / count
        places = np.minimum(self.tree.find(shares * self.tree.total), self.size - 1)
        chance = np.maximum(self.tree.get(places), 1e-12) / self.tree.total
        importance = (self.size * chance) ** -self.beta
        weights = (importance / importance.max()).astype(np.float32)
        return Batch(self.records[places], places, weights)

    def update(self, places: Array, priorities: Array) -> None:
        """Set the priorities of transitions: errors, at least 0."""
        if self.tree is None:
            return
        priorities = np.asarray(priorities, np.float64) + 1e-6
        self.max_priority = max(self.max_priority, float(priorities.max()))
        self.tree.set(places, priorities**self.alpha)

    def state(self) -> dict[str, Array]:
        """The state for `restore`, as arrays; the oldest transition first."""
        places = (self.next - self.size + np.arange(self.size)) % len(self.records)
        state = {"records": self.records[places], "most": np.array([self.max_priority])}
        if self.tree is not None:
            state["priorities"] = self.tree.get(places)
        return state

    def restore(self, state: dict[str, Array]) -> None:
        """Restore a state; the oldest transitions are left out if not all fit."""
        records = state["records"][-len(self.records) :]
        self.size = self.next = 0
        self.add(records)
        self.max_priority = float(state["most"][0])
        if self.tree is not None:
            places = np.arange(self.size)
            self.tree.set(places, state["priorities"][-len(self.records) :])


class SumTree:
    """Numbers whose partial sums are found in log2(n) steps, for many at once."""

    def __init__(self, capacity: int) -> None:
        self.depth = max(1, (capacity - 1).bit_length())
        self.leaves = 1 << self.depth
        self.nodes = np.zeros(2 * self.leaves)

    @property
    def total(self) -> float:
        return float(self.nodes[1])

    def get(self, places: Array) -> Array:
        return np.asarray(self.nodes[places + self.leaves])

    def set(self, places: Array, values: Array) -> None:
        """Set values at places; the last value counts for a place that is given twice."""
        self.nodes[places + self.leaves] = values
        parents = places + self.leaves
        for _ in range(self.depth):
            parents = np.unique(parents >> 1)
            self.nodes[parents] = self.nodes[2 * parents] + self.nodes[2 * parents + 1]

    def find(self, sums: Array) -> Array:
        """The places where the running sum passes each of `sums` (in 0..total)."""
        node = np.ones(len(sums), np.int64)
        rest = np.array(sums, np.float64)
        for _ in range(self.depth):
            left = self.nodes[2 * node]
            right = rest >= left
            # Rounding may lead past the end: stay left if the right part is 0.
            right &= self.nodes[2 * node + 1] > 0
            rest -= np.where(right, left, 0)
            node = 2 * node + right
        return node - self.leaves
