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
    """Trajectories: n steps of each of b actors. All arrays are floats [n, b].

    pi is the policy that learns, and mu the compressed policy that acted. V(x) is the value of a
    state under pi, and Q(x, a) the value of an action in it.

    Attributes:
        log_pi: Log probabilities of the actions under pi.
        log_mu: Log probabilities under mu when it acted; None if they were not stored.
        rewards: Rewards of the steps.
        discounts: Discount of the next state: gamma, or 0 after a terminal state.
        follows: 1 if the next row is the next step of the episode, else 0. The last row is ignored.
        values: V of the states in which the actions were taken.
        next_values: V of the states after the actions: `values` of the next row, if it follows.
        action_values: Q of the actions; None if the critic computes values of states only.

    Examples:
        >>> import numpy as np
        >>> from qgraph.rl.correct import Trajectories
        >>> one = np.ones((2, 1))
        >>> steps = Trajectories(-one, -one, one, 0.5 * one, one, 0 * one, 0 * one)
        >>> steps.ratios(np).tolist()
        [[1.0], [1.0]]
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
        """Compute pi / mu of each action.

        Args:
            xp: `numpy` or `tensorflow`.

        Returns:
            Ratios, [n, b].

        Raises:
            UsageError: Log probabilities of mu are missing or, in arrays, not finite.
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
        """The values of actions, [n, b].

        Raises:
            UsageError: `action_values` is None.
        """
        if self.action_values is None:
            raise UsageError(
                "the corrector needs values of actions, but the critic has values of states",
                node="action_values",
                hint="vtrace uses values of states",
            )
        return self.action_values

    def errors(self, base: Tensor) -> Tensor:
        """Compute temporal differences: r_t + gamma V(x_{t+1}) - base_t.

        Args:
            base: V(x_t) or Q(x_t, a_t), [n, b].

        Returns:
            Temporal differences, [n, b].
        """
        return self.rewards + self.discounts * self.next_values - base

    def ahead(self, targets: Tensor, xp: Namespace) -> Tensor:
        """Shift targets by one row: the target of the next step, or V of the next state if none
        follows.

        Args:
            targets: Targets, [n, b].
            xp: `numpy` or `tensorflow`.

        Returns:
            Shifted targets, [n, b].
        """
        last = self.rewards.shape[0] - 1
        rows = [
            self.follows[t] * targets[t + 1] + (1 - self.follows[t]) * self.next_values[t]
            for t in range(last)
        ]
        return xp.stack([*rows, self.next_values[last]])

    def summed(self, errors: Tensor, traces: Tensor, xp: Namespace) -> Tensor:
        """Sum errors along trajectories.

        The sum is s_t = errors_t + gamma traces_t s_{t+1} if the next row follows, else errors_t.

        Args:
            errors: Errors of each step, [n, b].
            traces: Weight of row t + 1 in row t, [n, b].
            xp: `numpy` or `tensorflow`.

        Returns:
            Sums, [n, b].
        """
        last = self.rewards.shape[0] - 1
        decays = self.discounts * self.follows * traces
        rows = [errors[last]]
        for t in reversed(range(last)):
            rows.append(errors[t] + decays[t] * rows[-1])
        return xp.stack(rows[::-1])


@runtime_checkable
class Corrector(Protocol):
    """Interface of correctors: targets for the critic, or weights for the policy's gradient.

    A call takes trajectories and the module of array functions, and returns an array [n, b].

    Attributes:
        corrects: `targets` or `weights`.
        of_actions: Whether targets are of Q(x_t, a_t); otherwise they are of V(x_t).

    Examples:
        >>> from qgraph.rl.correct import Corrector, VTrace
        >>> isinstance(VTrace(), Corrector)
        True
    """

    corrects: ClassVar[str]
    of_actions: ClassVar[bool]

    def __call__(self, steps: Trajectories, xp: Namespace) -> Tensor: ...
