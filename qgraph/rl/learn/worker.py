"""One actor: a policy in an environment, whose steps become transitions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from qgraph.errors import RunError
from qgraph.ir.types import Array
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.environments import Environment, Outcome, make
from qgraph.rl.head import Head
from qgraph.rl.learn.records import Window, record_type


class ActingPolicy(Protocol):
    """The policy of an actor: packed, or in float."""

    @property
    def version(self) -> int: ...

    def __call__(self, observations: Array) -> Array: ...


Latest = Callable[[], ActingPolicy]  # the newest policy there is


class ActorWorker:
    """`step` acts once. Every `actor_update_period` steps the newest policy is asked for.

    Raises RunError where the environment gives numbers that are not finite: no learner is to learn
    from them. An actor that is started anew begins with another episode.
    """

    def __init__(
        self, config: RunConfig, index: int, head: Head, latest: Latest, begun: int = 0
    ) -> None:
        self.config, self.index, self.latest = config, index, latest
        self.environment: Environment = make(config.environment)
        self.dtype = record_type(self.environment)
        self._numbers = self.environment.dtype != np.uint8  # and not images
        self.explore = config.exploration(index, head)
        self.window = Window(config.record_steps, config.discount)
        # What a resumed run draws is not what it drew before.
        self.rng = np.random.default_rng([config.seed, index, begun])
        self.taken = begun
        # On looking for policies, running them, choosing actions, and in the environment.
        self.seconds = np.zeros(4)
        self.policy = latest()
        self.observation, self.returned, self.length = self._begin(), 0.0, 0

    def step(self) -> Array:
        """The transitions that are complete after one more step: most often one."""
        times = [time.perf_counter()]
        if self.taken % self.config.actor_update_period == 0:
            self.policy = self.latest()
        times.append(time.perf_counter())
        outputs = self.policy(self.observation[None])[0]
        times.append(time.perf_counter())
        action, sent, chance = self.explore.choose(outputs, self.taken, self.rng)
        times.append(time.perf_counter())
        outcome = self.environment.step(sent)
        times.append(time.perf_counter())
        self._check(outcome.observation, outcome.reward)
        self.seconds += np.diff(times)
        self.taken += 1
        self.returned += outcome.reward
        self.length += 1
        version = self.policy.version
        found = self.window.add(self.observation, action, version, self._learnt(outcome), chance)
        self.observation = outcome.observation
        records = self._records(found)
        if outcome.over:
            records[-1]["returned"], records[-1]["length"] = self.returned, self.length
            self.observation, self.returned, self.length = self._begin(), 0.0, 0
        return records

    def close(self) -> None:
        self.environment.close()

    def _learnt(self, outcome: Outcome) -> Outcome:
        """The outcome as the learner gets it: its reward may be clipped, returns never are."""
        most = self.config.reward_clip
        if not most:
            return outcome
        return replace(outcome, reward=min(max(outcome.reward, -most), most))

    def _begin(self) -> Array:
        observation = self.environment.reset(int(self.rng.integers(1 << 31)))
        self._check(observation)
        return observation

    def _check(self, observation: Array, reward: float = 0.0) -> None:
        if not math.isfinite(reward):
            raise RunError(f"`{self.config.environment}` gave a reward of {reward}")
        if self._numbers and not np.isfinite(observation).all():
            raise RunError(
                f"`{self.config.environment}` gave an observation that is not finite: "
                f"{np.count_nonzero(~np.isfinite(observation))} of {observation.size} numbers"
            )

    def _records(self, found: list[tuple[object, ...]]) -> Array:
        rows = [(*row, self.index, np.nan, 0) for row in found]
        return np.array(rows, self.dtype)
