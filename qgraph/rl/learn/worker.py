"""One actor: a policy in an environment, whose steps become transitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.environments import Environment, make
from qgraph.rl.head import Head
from qgraph.rl.learn.exploration import Epsilon, Exploration, Noise, epsilon_ladder, sigma_ladder
from qgraph.rl.learn.options import Options
from qgraph.rl.learn.records import Window, record_type


class Policy(Protocol):
    """What an actor acts by: the packed one, or the one in float."""

    @property
    def version(self) -> int: ...

    def __call__(self, observations: Array) -> Array: ...


Latest = Callable[[], Policy]  # the newest policy there is


class Worker:
    """`step` acts once. Every `actor_update_period` steps the newest policy is asked for."""

    def __init__(
        self, options: Options, index: int, head: Head, latest: Latest, begun: int = 0
    ) -> None:
        self.options, self.index, self.latest = options, index, latest
        self.environment: Environment = make(options.environment)
        self.dtype = record_type(self.environment)
        self.explore = exploration(options, index, head)
        self.window = Window(options.n, options.gamma)
        # What a resumed run draws is not what it drew before.
        self.rng = np.random.default_rng([options.seed, index, begun])
        self.taken = begun
        self.policy = latest()
        self.observation, self.returned, self.length = self._begin(), 0.0, 0

    def step(self) -> Array:
        """The transitions that are complete after one more step: most often one."""
        if self.taken % self.options.actor_update_period == 0:
            self.policy = self.latest()
        outputs = self.policy(self.observation[None])[0]
        action, sent = self.explore.choose(outputs, self.taken, self.rng)
        outcome = self.environment.step(sent)
        self.taken += 1
        self.returned += outcome.reward
        self.length += 1
        found = self.window.add(self.observation, action, self.policy.version, outcome)
        self.observation = outcome.observation
        records = self._records(found)
        if outcome.over:
            records[-1]["returned"], records[-1]["length"] = self.returned, self.length
            self.observation, self.returned, self.length = self._begin(), 0.0, 0
        return records

    def close(self) -> None:
        self.environment.close()

    def _begin(self) -> Array:
        return self.environment.reset(int(self.rng.integers(1 << 31)))

    def _records(self, found: list[tuple[Any, ...]]) -> Array:
        rows = [(*row, self.index, np.nan, 0) for row in found]
        return np.array(rows, self.dtype)


def exploration(options: Options, index: int, head: Head) -> Exploration:
    if head.discrete:
        last = epsilon_ladder(index, options.actors, options.explore)
        return Epsilon(last, options.explore_steps // options.actors)
    return Noise(sigma_ladder(index, options.actors, options.explore), head)


class LocalActors:
    """Actors in this process, one step each in turn; for small tasks, and to look into."""

    def __init__(self, options: Options, head: Head, policy: Policy, begun: int = 0) -> None:
        self.policy = policy
        each = begun // options.actors
        self.workers = [
            Worker(options, i, head, lambda: self.policy, each) for i in range(options.actors)
        ]
        self.turn = 0
        self.left = np.empty(0, self.workers[0].dtype)

    def publish(self, policy: Policy) -> None:
        self.policy = policy

    def take(self, most: int) -> Array:
        """`most` records."""
        found, count = [self.left], len(self.left)
        while count < most:
            found.append(self.workers[self.turn].step())
            count += len(found[-1])
            self.turn = (self.turn + 1) % len(self.workers)
        records = np.concatenate(found)
        self.left = records[most:]
        return records[:most]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
