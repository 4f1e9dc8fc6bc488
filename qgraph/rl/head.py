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

    low and high are bounds of one action, [a], float32; log_std, [a], is for `gaussian` only.

    Raises UsageError for an unknown kind, and for bounds that do not fit together.
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
        """The number of outputs that the head takes for actions of `numbers` numbers."""
        return numbers * (2 if self.kind == HeadKind.SQUASHED_GAUSSIAN else 1)

    @property
    def draws(self) -> bool:
        """True if actors draw their actions from the policy's distribution."""
        return self.kind in DRAWN

    def actions(self, outputs: Array, rng: np.random.Generator | None = None) -> Array:
        """Actions, int64 [n] or float32 [n, a]; without rng the likeliest ones."""
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
            outputs = np.tanh(mean)
        if self.kind == "gaussian" and rng is not None:
            outputs = outputs + np.exp(self.log_std) * rng.normal(size=outputs.shape)
        if self.kind in ("scale", "squashed_gaussian"):
            outputs = low + (np.clip(outputs, -1, 1) + 1) * (high - low) / 2
        return np.clip(outputs, low, high).astype(np.float32)

    def as_json(self) -> Object:
        """The head as JSON, which `from_json` reads."""
        return {
            "kind": self.kind,
            "low": list(self.low),
            "high": list(self.high),
            "log_std": list(self.log_std),
        }

    @staticmethod
    def from_json(data: object) -> Head:
        """The head that `as_json` wrote. Raises ValueError, UsageError."""
        return from_json(Head, data)
