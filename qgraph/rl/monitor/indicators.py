"""Indicators: the distance of the compressed policy from the original, and of learning."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.compress.action_distributions import entropy, soft
from qgraph.rl.compress.chain_policy import ChainPolicy
from qgraph.rl.policy.shift import divergences

NAN = math.nan
RECENT = 20  # episodes of actors that `returned` averages


@dataclass(frozen=True)
class LearnerFacts:
    """Facts of the learner; NaN for those that are unknown yet.

    version             learner steps so far
    seconds             that the run has taken
    returned            mean undiscounted return of the actors' newest episodes, RECENT at most
    original_return     of an evaluation of the original policy, that acts as actors do, and
    compressed_return   of what actors run, on the same seeds
    staleness           learner steps that the policies which acted are behind, on average
    compressed_version  of what was evaluated as what actors run
    episodes            of actors that have ended so far
    """

    version: int = 0
    seconds: float = 0.0
    returned: float = NAN
    original_return: float = NAN
    compressed_return: float = NAN
    staleness: float = NAN
    compressed_version: float = NAN
    episodes: float = NAN


@dataclass(frozen=True)
class Indicators:
    """One look. Divergences are KL(original || compressed) in nats, over observations.

    kl_mean, kl_max, kl_variance    (AcceRL, section 2.4, equation 5)
    entropy     mean entropy of the compressed policy, in nats
    returned    as in `LearnerFacts`
    reward_gap  return of the original less that of the compressed policy; negative where the
                compressed one is better, NaN until one of the chain in force was evaluated
    evaluated   version of the compressed policy that the gap is of: looks between evaluations have
                the same
    episodes    as in `LearnerFacts`
    """

    version: int
    seconds: float
    kl_mean: float = NAN
    kl_max: float = NAN
    kl_variance: float = NAN
    entropy: float = NAN
    returned: float = NAN
    reward_gap: float = NAN
    staleness: float = NAN
    evaluated: float = NAN
    episodes: float = NAN


def measure(
    original: ChainPolicy, compressed: ChainPolicy, seen: Array, facts: LearnerFacts
) -> Indicators:
    """Compare two policies on observations [n, *shape]; the compressed one as packed, in its bits.

    Heads that draw nothing are taken as `soft` has them.
    """
    head = soft(original.head)
    actions = compressed.actor()(seen)
    apart = divergences(head, original.actor()(seen), actions)
    assert apart is not None, "a soft head draws"
    # Rounding gives about -1e-16 for equal policies.
    apart = np.maximum(apart, 0)
    return replace(
        unmeasured(facts),
        kl_mean=float(apart.mean()),
        kl_max=float(apart.max()),
        kl_variance=float(apart.var()),
        entropy=float(entropy(head, actions).mean()),
    )


def unmeasured(facts: LearnerFacts) -> Indicators:
    """Indicators without a comparison of policies."""
    gap = facts.original_return - facts.compressed_return
    return Indicators(
        facts.version,
        facts.seconds,
        returned=facts.returned,
        reward_gap=gap,
        staleness=facts.staleness,
        evaluated=facts.compressed_version if math.isfinite(gap) else NAN,
        episodes=facts.episodes,
    )
