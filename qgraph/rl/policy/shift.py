"""The difference between a quantized policy and the float one on the same observations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.head import LOG_STD, Head

BINS = 32  # of a continuous action's range
NEAR = 0.01  # share of its range within which two actions count as the same
MIN_SAME = 0.9  # a warning is given below this share of equal actions
MAX_DISTANCE = 0.05  # a warning is given above this mean distance, as a share of the range


@dataclass(frozen=True)
class Shift:
    """The difference of two policies; divergences are KL(float || quantized) in nats.

    kl_actions: between the frequencies of actions; for continuous ones, of each number in 32 bins,
    then the mean. For actions without bounds, their range in both policies is used. kl_policy:
    between the distributions of actions, the mean over observations; None for a head that does not
    draw.
    """

    same_action: float
    kl_actions: float
    kl_policy: float | None


def shift(head: Head, wanted: Array, found: Array) -> Shift:
    """The `Shift` of two policies, from their outputs for the same observations, [n, m]."""
    ours, theirs = head.actions(found), head.actions(wanted)
    if head.integers:
        same = (ours == theirs).reshape(len(ours), -1).all(-1)
    else:
        head = _bounded(head, np.concatenate([theirs, ours]))
        span = np.subtract(head.high, head.low)
        same = (np.abs(ours - theirs) <= NEAR * span).all(-1)
    counts = zip(
        frequencies(head, theirs, wanted.shape[1]),
        frequencies(head, ours, wanted.shape[1]),
        strict=True,
    )
    apart = [divergence(p, q) for p, q in counts]
    drawn = divergences(head, wanted, found)
    kl_policy = None if drawn is None else float(drawn.mean())
    return Shift(float(same.mean()), float(np.mean(apart)), kl_policy)


def _bounded(head: Head, actions: Array) -> Head:
    """The head with finite bounds: infinite ones are replaced by those of `actions`, [n, a]."""
    low, high = (
        np.where(np.isfinite(ends), ends, found)
        for ends, found in ((head.low, actions.min(0)), (head.high, actions.max(0)))
    )
    return replace(head, low=tuple(low.tolist()), high=tuple(high.tolist()))


def difference_warning(head: Head, wanted: Array, found: Array) -> str | None:
    """A warning if many actions of a quantized policy differ from those of the float policy.

    wanted, found: the outputs of both for the same observations, [n, m]. None if they agree well.
    """
    ours, theirs = head.actions(found), head.actions(wanted)
    if head.integers:
        same = float((ours == theirs).reshape(len(ours), -1).all(-1).mean())
        if same >= MIN_SAME:
            return None
        return f"only {same:.1%} of {len(ours)} actions equal those of the float policy"
    span = np.subtract(head.high, head.low)
    apart = float((np.abs(ours - theirs) / np.where(np.isfinite(span), span, 1)).mean())
    if apart <= MAX_DISTANCE:
        return None
    return f"actions differ from those of the float policy by {apart:.1%} of their range on average"


def frequencies(head: Head, actions: Array, outputs: int) -> Array:
    """The frequency of each action, [1, outputs]; of each option of each choice, [a, options]; or
    of each bin of each number, [a, 32].
    """
    if head.discrete:
        return np.bincount(actions, minlength=outputs)[None]
    if head.composite:
        most = max(head.choices)
        return np.stack([np.bincount(column, minlength=most) for column in actions.T])
    return np.stack(
        [
            np.histogram(actions[:, i], BINS, (low, high))[0]
            for i, (low, high) in enumerate(zip(head.low, head.high, strict=True))
        ]
    )


def divergence(p: Array, q: Array) -> float:
    """KL(p || q) of two rows of counts, with half a count added to each."""
    p, q = (np.asarray(counts, np.float64) + 0.5 for counts in (p, q))
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


def divergences(head: Head, wanted: Array, found: Array) -> Array | None:
    """KL(wanted || found) of the distributions of actions for each observation, float64 [n].

    wanted, found: outputs, [n, m]. None for a head that does not draw.
    """
    p, q = np.asarray(wanted, np.float64), np.asarray(found, np.float64)
    if head.kind == "categorical":
        p, q = _log_softmax(p), _log_softmax(q)
        return np.asarray((np.exp(p) * (p - q)).sum(-1))
    if head.kind == "multi_categorical":
        pairs = zip(head.parts(p), head.parts(q), strict=True)
        logs = [(_log_softmax(a), _log_softmax(b)) for a, b in pairs]
        return np.asarray(np.sum([(np.exp(a) * (a - b)).sum(-1) for a, b in logs], 0))
    if head.kind == "bernoulli":
        on, off = (_log_sigmoid(s * p) - _log_sigmoid(s * q) for s in (1, -1))
        share = np.exp(_log_sigmoid(p))
        return np.asarray((share * on + (1 - share) * off).sum(-1))
    if head.kind == "gaussian":
        apart = (p - q) / np.exp(np.asarray(head.log_std))
        return np.asarray((apart**2 / 2).sum(-1))
    if head.kind == "squashed_gaussian":  # tanh is one to one: it changes no divergence
        (p, p_log), (q, q_log) = np.split(p, 2, -1), np.split(q, 2, -1)
        p_log, q_log = np.clip(p_log, *LOG_STD), np.clip(q_log, *LOG_STD)
        wide = (np.exp(2 * p_log) + (p - q) ** 2) / (2 * np.exp(2 * q_log))
        return np.asarray((q_log - p_log + wide - 0.5).sum(-1))
    return None


def _log_sigmoid(x: Array) -> Array:
    return np.asarray(-np.logaddexp(0, -x))


def _log_softmax(x: Array) -> Array:
    x = x - x.max(-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))
