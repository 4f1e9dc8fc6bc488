"""Transitions as records of fixed size, and the n steps that one is made of."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.environments import Environment, Outcome
from qgraph.rl.environments.environment import Action


def record_type(environment: Environment) -> np.dtype[np.void]:
    """One transition: after `action` in `observation`, n steps brought `reward`.

    `discount` is what the value of `next_observation` counts by. `version` is that of the policy
    which chose the action, `log_probability` that of the action by this very policy, as it was
    packed (NaN where it was not drawn from one), `actor` who did. Where an episode ended with this
    record, `returned` is its undiscounted return and `length` its steps; else they are NaN and 0.
    """
    actions = environment.actions
    action: Any = np.int64 if actions.discrete else (np.float32, (len(actions.low),))
    return np.dtype(
        [
            ("observation", environment.dtype, environment.shape),
            ("action", *([action] if actions.discrete else action)),
            ("reward", np.float32),
            ("discount", np.float32),
            ("next_observation", environment.dtype, environment.shape),
            ("version", np.int64),
            ("log_probability", np.float32),
            ("actor", np.int32),
            ("returned", np.float32),
            ("length", np.int32),
        ]
    )


@dataclass(frozen=True)
class _Begun:
    observation: Array
    action: Action
    version: int
    log_probability: float


@dataclass
class Window:
    """The last n steps of an episode, which become transitions one by one."""

    steps: int
    gamma: float
    begun: deque[tuple[_Begun, Outcome]] = field(default_factory=deque)

    def add(
        self,
        observation: Array,
        action: Action,
        version: int,
        outcome: Outcome,
        log_probability: float = float("nan"),
    ) -> list[tuple[object, ...]]:
        """The transitions that this step completes: one, at first none, at the end all left.

        Each has the first fields of a record, up to its log probability.
        """
        self.begun.append((_Begun(observation, action, version, log_probability), outcome))
        found = []
        while self.begun and (outcome.over or len(self.begun) == self.steps):
            found.append(self._oldest())
        return found

    def _oldest(self) -> tuple[object, ...]:
        reward, discount = 0.0, 1.0
        for _, outcome in self.begun:
            reward += discount * outcome.reward
            discount *= self.gamma * outcome.discount
        first, _ = self.begun.popleft()
        return (
            first.observation, first.action, reward, discount, outcome.observation, first.version,
            first.log_probability,
        )  # fmt: skip
