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
    """Facts of the learner. Those that are unknown yet are NaN.

    Attributes:
        version: Learner steps so far.
        seconds: Duration of the run so far.
        returned: Mean undiscounted return of the actors' newest episodes, at most 20.
        original_return: Return of the original policy in an evaluation, acting as actors do.
        compressed_return: Return of the policy that actors run, on the same seeds.
        staleness: Mean number of learner steps that the policies which acted are behind.
        compressed_version: Version of the compressed policy that was evaluated.
        episodes: Episodes of actors that have ended.

    Examples:
        >>> from qgraph.rl.monitor import LearnerFacts
        >>> LearnerFacts(version=1000, returned=195.0).staleness
        nan
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
    """One measurement of a compressed policy. Divergences are KL(original || compressed), in nats.

    Attributes:
        version: Learner steps so far.
        seconds: Duration of the run so far.
        kl_mean: Mean of the divergences over observations (AcceRL, section 2.4, equation 5).
        kl_max: Their maximum.
        kl_variance: Their variance.
        entropy: Mean entropy of the compressed policy, in nats.
        returned: Mean return, as in `LearnerFacts`.
        reward_gap: Return of the original minus that of the compressed policy. It is negative where
            the compressed policy is better, and NaN until a policy of the current chain was
            evaluated.
        staleness: As in `LearnerFacts`.
        evaluated: Version of the compressed policy that `reward_gap` belongs to. Measurements
            between two evaluations have the same one.
        episodes: As in `LearnerFacts`.

    Examples:
        >>> from qgraph.rl.monitor import Indicators
        >>> Indicators(version=1000, seconds=12.5, kl_max=0.2).kl_max
        0.2
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
    original: ChainPolicy, compressed: ChainPolicy, observations: Array, facts: LearnerFacts
) -> Indicators:
    """Compare a policy with its compressed form on observations.

    The compressed policy runs packed, with its bits. For heads that do not draw actions, a
    distribution is derived from the outputs.

    Args:
        original: The original policy.
        compressed: The compressed policy.
        observations: Observations, [n, *shape].
        facts: Facts of the learner, which are copied into the result.

    Returns:
        The indicators.

    Examples:
        `program` and `weights` are those of the example of `qgraph.rl.actor.ActorProgram`.

        >>> import numpy as np
        >>> from qgraph.rl.compress import ChainPolicy
        >>> from qgraph.rl.monitor import LearnerFacts, measure
        >>> policy = ChainPolicy(program, weights)
        >>> measure(policy, policy, np.eye(4, dtype=np.float32), LearnerFacts()).kl_max
        0.0
    """
    head = soft(original.head)
    actions = compressed.actor()(observations)
    apart = divergences(head, original.actor()(observations), actions)
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
