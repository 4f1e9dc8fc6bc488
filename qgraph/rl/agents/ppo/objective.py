"""The objective of PPO for a minibatch: equation 9 of Schulman et al., 2017.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from qgraph.foreign import Tensor
from qgraph.rl.agents.ppo.config import PpoConfig

SMALL = 1e-8  # added to the deviation of advantages


class Minibatch(NamedTuple):
    """Steps [n] that a loss is computed from.

    log_mu      log probability of the action by the policy that acted
    value       V(observation) before the first epoch
    """

    observation: Tensor
    action: Tensor
    log_mu: Tensor
    advantage: Tensor
    target: Tensor
    value: Tensor


class Measures(NamedTuple):
    """Numbers of a minibatch, or their means over the minibatches of a rollout.

    kl          an estimate of the divergence of the policy from the one that acted
    clipped     share of steps whose ratio of probabilities is outside of the clip range
    minibatches how many there were
    """

    loss: Tensor
    kl: Tensor
    clipped: Tensor
    minibatches: Tensor


def objective(
    config: PpoConfig, batch: Minibatch, log_pi: Tensor, entropy: Tensor, value: Tensor
) -> Measures:
    """The loss of a minibatch, whose value loss may be clipped, and measures of the policy.

    log_pi: log probability [n] of the actions by the policy that learns. entropy: of its
    distributions, [n]. value: V(observation), [n].
    """
    log_ratio = log_pi - batch.log_mu
    ratio = tf.exp(log_ratio)
    advantage = batch.advantage
    if config.normalize_advantages:
        advantage = _normalized(advantage)
    low, high = 1 - config.clip_range, 1 + config.clip_range
    clipped = tf.clip_by_value(ratio, low, high)
    gain = tf.reduce_mean(tf.minimum(ratio * advantage, clipped * advantage))
    if config.value_clip_range:
        most = config.value_clip_range
        value = batch.value + tf.clip_by_value(value - batch.value, -most, most)
    value_loss = tf.reduce_mean(tf.square(batch.target - value))
    entropy = tf.reduce_mean(entropy)
    return Measures(
        loss=config.value_cost * value_loss - gain - config.entropy_cost * entropy,
        kl=tf.reduce_mean(ratio - 1 - log_ratio),
        clipped=tf.reduce_mean(tf.cast((ratio < low) | (ratio > high), tf.float32)),
        minibatches=tf.constant(1.0),
    )


def _normalized(x: Tensor) -> Tensor:
    """Numbers [n] with a mean of 0 and a deviation of 1, as a sample; a single one is unchanged."""
    count = x.shape[0]
    if count == 1:
        return x
    away = x - tf.reduce_mean(x)
    deviation = tf.sqrt(tf.reduce_sum(tf.square(away)) / (count - 1))
    return away / (deviation + SMALL)
