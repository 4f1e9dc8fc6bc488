"""Policies as distributions of actions, also those whose head does not draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.foreign import Tensor
from qgraph.ir.types import Array
from qgraph.rl.head import LOG_STD, Head

SIGMA = 0.1  # the deviation that a head of means gets, as a share of an action's range


def soft(head: Head) -> Head:
    """A head that draws actions, for one that takes the best one.

    Values of actions are used as logits. Actions get a deviation of a tenth of their range, as in
    the largest exploration of `d4pg`. Raises UnsupportedError for several choices.
    """
    if head.composite:
        raise UnsupportedError(
            f"a `{head.kind}` head has no distillation",
            hint="quantize the policy without a student",
        )
    if head.kind == "argmax":
        return replace(head, kind="categorical")
    if head.kind in ("clip", "scale"):
        span = (
            np.subtract(head.high, head.low) if head.kind == "clip" else np.full(len(head.low), 2)
        )
        return replace(head, kind="gaussian", log_std=tuple(map(float, np.log(SIGMA * span))))
    return head


@dataclass(frozen=True)
class Outputs:
    """The outputs of a policy for n observations: the output for actions, and values if any.

    actions     [n, m], the first output
    values      [n], an output of one number; None without one
    """

    actions: Array
    values: Array | None


def outputs_of(outputs: Mapping[str, Tensor]) -> Outputs:
    """`Outputs` from outputs by name, the first of which is for actions; arrays or tensors."""
    actions, *others = outputs.values()
    values = [other[:, 0] for other in others if tuple(other.shape[1:]) == (1,)]
    return Outputs(actions, values[0] if values else None)


def entropy(head: Head, actions: Array) -> Array:
    """The entropy of drawn actions for each observation, in nats, float64 [n]; before tanh, if any.

    head: a head that draws (`soft`).
    """
    x = np.asarray(actions, np.float64)
    if head.kind == "categorical":
        x = x - x.max(-1, keepdims=True)
        log = x - np.log(np.exp(x).sum(-1, keepdims=True))
        return np.asarray(-(np.exp(log) * log).sum(-1))
    if head.kind == "squashed_gaussian":
        log_std = np.clip(np.split(x, 2, -1)[1], *LOG_STD)
    else:
        log_std = np.asarray(head.log_std) + np.zeros_like(x)
    return np.asarray((log_std + 0.5 * np.log(2 * np.pi * np.e)).sum(-1))
