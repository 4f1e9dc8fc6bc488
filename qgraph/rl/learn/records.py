"""Transitions of n steps as records of fixed size."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.environments import Environment, Outcome
from qgraph.rl.environments.environment import Action


def record_type(environment: Environment, states: int = 0) -> np.dtype[np.void]:
    """The dtype of a transition: after `action` in `observation`, n steps gave `reward`.

    discount: the weight of the value of `next_observation`. version: of the policy that chose the
    action. log_probability: of the action by that policy, as it was packed; NaN if it was not drawn
    from one. actor: the actor's number. returned, length: the undiscounted return and the steps of
    an episode that ended with this record; else NaN and 0. state: the states of a recurrent policy
    in front of the action, if there are `states` numbers of them.
    """
    actions = environment.actions
    shape = () if actions.discrete else (len(actions.low),)
    return np.dtype(
        [
            ("observation", environment.dtype, environment.shape),
            ("action", np.int64 if actions.discrete else np.float32, shape),
            ("reward", np.float32),
            ("discount", np.float32),
            ("next_observation", environment.dtype, environment.shape),
            ("version", np.int64),
            ("log_probability", np.float32),
            ("actor", np.int32),
            ("returned", np.float32),
            ("length", np.int32),
            *([("state", np.float32, (states,))] if states else []),
        ]
    )


@dataclass(frozen=True)
class _PendingStep:
    observation: Array
    action: Action
    version: int
    log_probability: float


@dataclass
class Window:
    """The last n steps of an episode, from which transitions are made."""

    steps: int
    gamma: float
    pending: deque[tuple[_PendingStep, Outcome]] = field(default_factory=deque)

    def add(
        self,
        observation: Array,
        action: Action,
        version: int,
        outcome: Outcome,
        log_probability: float = float("nan"),
    ) -> list[tuple[object, ...]]:
        """The transitions that a step completes: none at first, then one, at the end all the rest.

        Each has the first fields of a record, up to its log probability.
        """
        self.pending.append((_PendingStep(observation, action, version, log_probability), outcome))
        found = []
        while self.pending and (outcome.over or len(self.pending) == self.steps):
            found.append(self._oldest())
        return found

    def _oldest(self) -> tuple[object, ...]:
        reward, discount = 0.0, 1.0
        for _, outcome in self.pending:
            reward += discount * outcome.reward
            discount *= self.gamma * outcome.discount
        first, _ = self.pending.popleft()
        return (
            first.observation, first.action, reward, discount, outcome.observation, first.version,
            first.log_probability,
        )  # fmt: skip
