"""The log probability and the entropy of actions, of the distributions that PPO draws from.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import math

import tensorflow as tf

from qgraph.foreign import Tensor
from qgraph.rl.half.normal import log_density


def of_logits(logits: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """The log probability [n] of discrete actions [n], and the entropy [n], from logits [n, m]."""
    logs = tf.nn.log_softmax(logits)
    entropy = -tf.reduce_sum(tf.exp(logs) * logs, -1)
    return tf.gather(logs, action, batch_dims=1), entropy


def of_means(means: Tensor, log_std: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """The log-density [n] of actions [n, a] before their clip, and the entropy [n].

    Normal distributions with these means [n, a], and the same log deviations [a] for all.
    """
    density = tf.reduce_sum(log_density(action, means, tf.exp(log_std)), -1)
    entropy = tf.reduce_sum(log_std + (1 + math.log(2 * math.pi)) / 2)
    return density, tf.fill(tf.shape(density), entropy)
