"""The input of correctors, and the interface of a corrector.

Arrays are numpy's or TensorFlow's; `xp` is the module whose functions take them, `numpy` or
`tensorflow`. So a corrector is written once, and no framework is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from qgraph.errors import UsageError
from qgraph.foreign import Namespace, Tensor


@dataclass(frozen=True)
class Trajectories:
    """n steps of b trajectories, all of it floats [n, b].

    pi is the policy that is learnt, mu the compressed one that acted. The value of a state, under
    pi, is V(x); one of an action in it Q(x, a).

    log_pi         log probabilities of the actions by pi
    log_mu         by mu, as it was when it acted; None where nobody kept them
    rewards        of the steps
    discounts      of what comes after: gamma, or 0 where the episode ended for good
    follows        1 where the next row is the next step of the episode, else 0; that of the last
                   row does not count
    values         V of the states in which the actions were taken
    next_values    V of the states to which they led: `values` one row later, where it follows
    action_values  Q of the actions in their states; None where the critic knows states only
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
        """pi / mu of each action. Raises UsageError without log probabilities of mu, and for arrays
        of such as are not finite.
        """
        if self.log_mu is None:
            raise UsageError(
                "the log probabilities of the policy that acted are not known",
                node="log_mu",
                hint="keep them with each step, or correct by tree_backup, which needs none",
            )
        if xp is np and not np.isfinite(self.log_mu).all():
            raise UsageError(
                "a log probability of the policy that acted is not finite",
                node="log_mu",
                hint="it took each of its actions with some chance",
            )
        return xp.exp(self.log_pi - self.log_mu)

    @property
    def q(self) -> Tensor:
        """`action_values`. Raises UsageError where there are none."""
        if self.action_values is None:
            raise UsageError(
                "values of actions are wanted, but the critic knows those of states only",
                node="action_values",
                hint="vtrace corrects those of states",
            )
        return self.action_values

    def errors(self, base: Tensor) -> Tensor:
        """Temporal differences: r_t + gamma V(x_{t+1}) less `base`, V(x_t) or Q(x_t, a_t)."""
        return self.rewards + self.discounts * self.next_values - base

    def ahead(self, targets: Tensor, xp: Namespace) -> Tensor:
        """The targets one row later; V of where a step led to, where no row follows."""
        last = self.rewards.shape[0] - 1
        rows = [
            self.follows[t] * targets[t + 1] + (1 - self.follows[t]) * self.next_values[t]
            for t in range(last)
        ]
        return xp.stack([*rows, self.next_values[last]])

    def summed(self, errors: Tensor, traces: Tensor, xp: Namespace) -> Tensor:
        """s_t = errors_t + gamma traces_t s_{t+1}, where the next row follows; else errors_t.

        traces_t says how much of the row t + 1 counts for row t.
        """
        last = self.rewards.shape[0] - 1
        decays = self.discounts * self.follows * traces
        rows = [errors[last]]
        for t in reversed(range(last)):
            rows.append(errors[t] + decays[t] * rows[-1])
        return xp.stack(rows[::-1])


class Corrector(Protocol):
    """Gives targets for the critic, or weights for the policy's gradient, [n, b].

    corrects: `targets` or `weights`. of_actions: whether targets are of Q(x_t, a_t), not V(x_t).
    """

    corrects: ClassVar[str]
    of_actions: ClassVar[bool]

    def __call__(self, steps: Trajectories, xp: Namespace) -> Tensor: ...
