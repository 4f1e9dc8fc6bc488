"""The loss of distillation on TensorFlow's tensors (AcceRL, equation 1).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from qgraph.foreign import Tensor
from qgraph.rl.head import LOG_STD, Head


def divergence(head: Head, wanted: Tensor, found: Tensor) -> Tensor:
    """KL(wanted || found) of the actions drawn from outputs [n, m], [n]. head: one that draws."""
    if head.kind == "categorical":
        p, q = tf.nn.log_softmax(wanted), tf.nn.log_softmax(found)
        return tf.reduce_sum(tf.exp(p) * (p - q), -1)
    if head.kind == "gaussian":
        apart = (wanted - found) / tf.exp(tf.constant(head.log_std, tf.float32))
        return tf.reduce_sum(apart**2 / 2, -1)
    (p, p_log), (q, q_log) = tf.split(wanted, 2, -1), tf.split(found, 2, -1)
    p_log, q_log = tf.clip_by_value(p_log, *LOG_STD), tf.clip_by_value(q_log, *LOG_STD)
    wide = (tf.exp(2 * p_log) + (p - q) ** 2) / (2 * tf.exp(2 * q_log))
    return tf.reduce_sum(q_log - p_log + wide - 0.5, -1)


def entropy(head: Head, found: Tensor) -> Tensor:
    """The entropy of drawn actions in nats, [n]; for a squashed Gaussian, before tanh."""
    if head.kind == "categorical":
        log = tf.nn.log_softmax(found)
        return -tf.reduce_sum(tf.exp(log) * log, -1)
    if head.kind == "squashed_gaussian":
        log_std = tf.clip_by_value(tf.split(found, 2, -1)[1], *LOG_STD)
    else:
        log_std = tf.constant(head.log_std, tf.float32) + tf.zeros_like(found)
    return tf.reduce_sum(log_std + 0.5 * np.log(2 * np.pi * np.e), -1)
