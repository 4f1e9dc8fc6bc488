"""Heads: they turn the output of a policy into an action."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qgraph.choices import HeadKind, chosen
from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.records import Object, from_json

DISCRETE = (HeadKind.ARGMAX, HeadKind.CATEGORICAL)
DRAWN = (HeadKind.CATEGORICAL, HeadKind.GAUSSIAN, HeadKind.SQUASHED_GAUSSIAN)
LOG_STD = (-20.0, 2.0)  # log deviations of a squashed Gaussian are clipped to this, as in SAC


@dataclass(frozen=True)
class Head:
    """The head of a policy with outputs [n, m].

        kind                output                      action
        argmax              values of actions, logits   the largest
        categorical         logits                      drawn by softmax; greedy: the largest
        clip                actions                     clipped to low..high
        scale               actions in -1..1            scaled to low..high
        gaussian            means                       drawn with deviations exp(log_std), clipped
        squashed_gaussian   means, log deviations       drawn, then tanh, scaled to low..high

    Attributes:
        kind: One of the kinds above.
        low: Lower bound of each number of a continuous action.
        high: Upper bound of each number.
        log_std: Logarithm of the deviation of each number, for `gaussian` only.

    Raises:
        UsageError: The kind is unknown, or the bounds do not fit together.

    Examples:
        >>> import numpy as np
        >>> from qgraph.rl.head import Head
        >>> Head("argmax").actions(np.array([[0.1, 0.7], [0.5, 0.2]])).tolist()
        [1, 0]
        >>> Head("clip", low=(-1.0,), high=(1.0,)).actions(np.array([[3.0]])).tolist()
        [[1.0]]
    """

    kind: str
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    log_std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", chosen(HeadKind, self.kind, "head"))
        sizes = {len(self.low), len(self.high), len(self.log_std) or len(self.low)}
        if len(sizes) > 1:
            raise UsageError("a head needs as many low as high bounds, and as many deviations")
        for low, high in zip(self.low, self.high, strict=True):
            if not low <= high:  # NaN too
                raise UsageError(f"a range of actions from {low:g} to {high:g} is empty")

    @property
    def discrete(self) -> bool:
        """Whether an action is the number of one of several."""
        return self.kind in DISCRETE

    def outputs_for(self, numbers: int) -> int:
        """Compute the number of outputs that the head takes.

        Args:
            numbers: How many numbers an action has, or the number of discrete actions.

        Returns:
            The number of outputs of the policy.
        """
        return numbers * (2 if self.kind == HeadKind.SQUASHED_GAUSSIAN else 1)

    @property
    def draws(self) -> bool:
        """True if actors draw their actions from the policy's distribution."""
        return self.kind in DRAWN

    def actions(self, outputs: Array, rng: np.random.Generator | None = None) -> Array:
        """Choose actions.

        Args:
            outputs: Outputs of the policy, [n, m].
            rng: Random numbers; None chooses the most likely actions.

        Returns:
            Actions, int64 [n] if they are discrete, else float32 [n, a].
        """
        if self.discrete:
            if rng is None or self.kind == "argmax":
                return np.asarray(outputs.argmax(-1))
            # The largest of logits with Gumbel noise is a draw from their softmax.
            return np.asarray((outputs + rng.gumbel(size=outputs.shape)).argmax(-1))
        low, high = (np.asarray(end, np.float32) for end in (self.low, self.high))
        if self.kind == "squashed_gaussian":
            mean, log_std = np.split(outputs, 2, -1)
            if rng is not None:
                mean = mean + np.exp(np.clip(log_std, *LOG_STD)) * rng.normal(size=mean.shape)
            # The tanh of float32 differs between processors, in its last bit.
            outputs = np.tanh(mean, dtype=np.float64).astype(mean.dtype)
        if self.kind == "gaussian" and rng is not None:
            outputs = outputs + np.exp(self.log_std) * rng.normal(size=outputs.shape)
        if self.kind in ("scale", "squashed_gaussian"):
            outputs = low + (np.clip(outputs, -1, 1) + 1) * (high - low) / 2
        return np.clip(outputs, low, high).astype(np.float32)

    def as_json(self) -> Object:
        """Convert the head to JSON.

        Returns:
            An object that `from_json` reads.
        """
        return {
            "kind": self.kind,
            "low": list(self.low),
            "high": list(self.high),
            "log_std": list(self.log_std),
        }

    @staticmethod
    def from_json(data: object) -> Head:
        """Read a head that `as_json` wrote.

        Args:
            data: The JSON object.

        Returns:
            The head.

        Raises:
            ValueError: The object has other fields.
            UsageError: The kind is unknown, or the bounds do not fit together.
        """
        return from_json(Head, data)
