"""Generalized advantage estimation (Schulman et al., 2016).

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import tensorflow as tf

from qgraph.foreign import Tensor


def advantages(errors: Tensor, decay: Tensor) -> Tensor:
    """The sums A[t] = errors[t] + decay[t] A[t + 1] of steps [n], with A[n] = 0 (equation 16).

    errors: reward + discount V(next observation) - V(observation). decay: discount times lambda; 0
    where the next step is of another episode or actor.

    Each pass doubles the number of steps that a sum contains, so there are log2(n) passes.
    """
    steps = errors.shape[0]
    reach = 1
    while reach < steps:
        later = tf.pad(errors[reach:], [[0, reach]])
        errors += decay * later
        decay *= tf.pad(decay[reach:], [[0, reach]])
        reach *= 2
    return errors
