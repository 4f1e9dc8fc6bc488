"""Environments, policies and records for tests of learners, without games and actors."""

from collections.abc import Sequence

import numpy as np

from benchmarks.low_precision_speed import batch_of as random_batch
from qgraph.rl.environments import Actions, Outcome
from qgraph.rl.learn.replay import Batch


class World:
    """The properties of an environment that a learner needs; `count` discrete actions, or
    numbers.
    """

    def __init__(self, shape=(3,), dtype=np.float32, actions=2, count=0):
        self.shape, self.dtype = shape, np.dtype(dtype)
        bounds = {"low": (-2.0,) * actions, "high": (2.0,) * actions}
        self.actions = Actions(count=count) if count else Actions(**bounds)


class Episodes(World):
    """Episodes with these rewards, which terminate or are truncated. Observations count the
    steps.
    """

    def __init__(self, rewards: Sequence[float], ended: bool = True, **facts):
        super().__init__(**facts)
        self.rewards, self.ended = rewards, ended

    def reset(self, seed=None):
        self.steps = 0
        return np.zeros(self.shape, self.dtype)

    def step(self, action):
        self.steps += 1
        reward, over = self.rewards[self.steps - 1], self.steps == len(self.rewards)
        seen = np.full(self.shape, self.steps / len(self.rewards), self.dtype)
        return Outcome(seen, reward, 0.0 if over and self.ended else 1.0, over)

    def close(self):
        """Nothing to close."""


class FixedPolicy:
    """A policy with the same outputs for all observations."""

    version = 1

    def __init__(self, outputs: Sequence[float]):
        self.outputs = np.asarray(outputs, np.float32)

    def __call__(self, observations):
        return np.tile(self.outputs, (len(observations), 1))


def batch_of(records: np.ndarray) -> Batch:
    """All records, with equal importance."""
    return Batch(records, np.arange(records.size), np.ones(records.size, np.float32))


def transitions(world: World, size: int = 16, rng=0, **columns) -> Batch:
    """Random transitions with the given columns. rng: a generator or a seed."""
    rng = np.random.default_rng(rng)
    batch = random_batch(world, size, rng)
    if world.actions.discrete:
        batch.records["action"] = rng.integers(world.actions.count, size=size)
    for name, values in columns.items():
        batch.records[name] = np.reshape(values, batch.records[name].shape)
    return batch
