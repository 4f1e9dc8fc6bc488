"""One actor: a policy acts in an environment, and its steps become transitions."""

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

    @property
    def outputs(self) -> tuple[str, ...]: ...

    def run(self, observations: Array) -> dict[str, Array]: ...

    def __call__(self, observations: Array) -> Array: ...


Latest = Callable[[int], ActingPolicy]  # returns the newest policy for a step of the actor


class ActorWorker:
    """Acts, one `step` at a time. Every `actor_update_period` steps it takes the newest policy.

    Raises RunError if the environment returns NaN or infinity, which learners must not see. A
    restarted actor begins with another episode.
    """

    def __init__(
        self, config: RunConfig, index: int, head: Head, latest: Latest, initial_steps: int = 0
    ) -> None:
        self.config, self.index, self.latest = config, index, latest
        self.environment: Environment = make(config.environment)
        self.dtype = record_type(self.environment, config.state_size)
        self._numbers = self.environment.dtype != np.uint8  # not images
        self.explore = config.exploration(index, head)
        self.window = Window(config.record_steps, config.discount)
        # A resumed run does not draw the same numbers again.
        self.rng = np.random.default_rng([config.seed, index, initial_steps])
        self.taken = initial_steps
        # Seconds for taking policies, running them, choosing actions, and the environment.
        self.seconds = np.zeros(4)
        self.policy = latest(self.taken)
        self.state = np.zeros(config.state_size, np.float32)
        self.observation, self.returned, self.length = self._begin(), 0.0, 0

    def step(self) -> Array:
        """Act once; returns the transitions that are complete, usually one."""
        times = [time.perf_counter()]
        if self.taken % self.config.actor_update_period == 0:
            self.policy = self.latest(self.taken)
        times.append(time.perf_counter())
        before = self.state
        outputs = self._outputs()
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
        clipped = self._clipped(outcome)
        rows = self.window.add(self.observation, action, version, clipped, chance)
        self.observation = outcome.observation
        records = self._records(rows, before)
        if outcome.over:
            records[-1]["returned"], records[-1]["length"] = self.returned, self.length
            self.observation, self.returned, self.length = self._begin(), 0.0, 0
            self.state = np.zeros_like(self.state)
        return records

    def close(self) -> None:
        self.environment.close()

    def _outputs(self) -> Array:
        """The first output for the observation; those of states are kept for the next step."""
        if not len(self.state):
            return np.asarray(self.policy(self.observation[None])[0])
        row = np.concatenate([self.observation, self.state], dtype=np.float32)
        outputs = self.policy.run(row[None])
        first, *states = (outputs[name][0] for name in self.policy.outputs)
        self.state = np.concatenate(states)
        return np.asarray(first)

    def _clipped(self, outcome: Outcome) -> Outcome:
        """The outcome with its reward clipped for the learner; returns are not clipped."""
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
            raise RunError(f"`{self.config.environment}` returned a reward of {reward}")
        if self._numbers and not np.isfinite(observation).all():
            raise RunError(
                f"`{self.config.environment}` returned an observation that is not finite: "
                f"{np.count_nonzero(~np.isfinite(observation))} of {observation.size} numbers"
            )

    def _records(self, rows: list[tuple[object, ...]], state: Array) -> Array:
        own = (state,) if len(state) else ()
        return np.array([(*row, self.index, np.nan, 0, *own) for row in rows], self.dtype)
