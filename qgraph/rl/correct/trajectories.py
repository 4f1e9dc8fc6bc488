"""The input of correctors, and the interface of a corrector.

Arrays are numpy's or TensorFlow's, and `xp` is the module with their functions, `numpy` or
`tensorflow`. A corrector is written once for both, and this module imports no framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from qgraph.errors import UsageError
from qgraph.foreign import Namespace, Tensor


@dataclass(frozen=True)
class Trajectories:
    """n steps of b trajectories; all arrays are floats [n, b].

    pi is the policy that is learnt, mu the compressed one that acted. V(x) is the value of a state
    under pi, Q(x, a) the value of an action in it.

    log_pi         log probabilities of the actions under pi
    log_mu         log probabilities under mu, when it acted; None if they were not stored
    rewards        of the steps
    discounts      of the next state: gamma, or 0 after a terminal state
    follows        1 if the next row is the next step of the episode, else 0; the last row does not
                   count
    values         V of the states in which the actions were taken
    next_values    V of the states after the actions: `values` one row later, if it follows
    action_values  Q of the actions in their states; None if the critic has values of states only
    """

    log_pi: Tensor
    log_mu: Tensor | None
    rewards: Tensor
    discounts: Tensor
    follows: Tensor
    values: Tensor
    next_values: Tensor
    action_values: Tensor | None = None

    def ratios(self, xp: Namespace) -> Tensor:
        """pi / mu of each action.

        Raises UsageError if log probabilities of mu are missing or, in arrays, not finite.
        """
        if self.log_mu is None:
            raise UsageError(
                "the log probabilities of the policy that acted are missing",
                node="log_mu",
                hint="store them with each step, or use tree_backup, which does not need them",
            )
        if xp is np and not np.isfinite(self.log_mu).all():
            raise UsageError(
                "a log probability of the policy that acted is not finite",
                node="log_mu",
                hint="each action that it took must have a probability above 0",
            )
        return xp.exp(self.log_pi - self.log_mu)

    @property
    def q(self) -> Tensor:
        """`action_values`. Raises UsageError if they are missing."""
        if self.action_values is None:
            raise UsageError(
                "the corrector needs values of actions, but the critic has values of states",
                node="action_values",
                hint="vtrace uses values of states",
            )
        return self.action_values

    def errors(self, base: Tensor) -> Tensor:
        """Temporal differences: r_t + gamma V(x_{t+1}) minus `base`, V(x_t) or Q(x_t, a_t)."""
        return self.rewards + self.discounts * self.next_values - base

    def ahead(self, targets: Tensor, xp: Namespace) -> Tensor:
        """The targets one row later; V of the state after a step if no row follows."""
        last = self.rewards.shape[0] - 1
        rows = [
            self.follows[t] * targets[t + 1] + (1 - self.follows[t]) * self.next_values[t]
            for t in range(last)
        ]
        return xp.stack([*rows, self.next_values[last]])

    def summed(self, errors: Tensor, traces: Tensor, xp: Namespace) -> Tensor:
        """s_t = errors_t + gamma traces_t s_{t+1} if the next row follows; else errors_t.

        traces_t is the weight of row t + 1 in row t.
        """
        last = self.rewards.shape[0] - 1
        decays = self.discounts * self.follows * traces
        rows = [errors[last]]
        for t in reversed(range(last)):
            rows.append(errors[t] + decays[t] * rows[-1])
        return xp.stack(rows[::-1])


@runtime_checkable
class Corrector(Protocol):
    """Computes targets for the critic, or weights for the policy's gradient, [n, b].

    corrects: `targets` or `weights`. of_actions: whether targets are of Q(x_t, a_t), not V(x_t).
    """

    corrects: ClassVar[str]
    of_actions: ClassVar[bool]

    def __call__(self, steps: Trajectories, xp: Namespace) -> Tensor: ...
