"""Data parallelism: a learner's step on several devices, each with its part of the batch.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from qgraph.foreign import Tensor
from qgraph.ir.types import Array


def split(strategy: tf.distribute.Strategy, column: Array) -> Tensor:
    """An array [n, b] as a tensor, or as one for each replica, [n, b / replicas]."""
    parts = np.split(column, strategy.num_replicas_in_sync, axis=1)
    if len(parts) == 1:
        return tf.convert_to_tensor(column)
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.convert_to_tensor(parts[context.replica_id_in_sync_group])
    )


def joined(strategy: tf.distribute.Strategy, results: Tensor) -> Tensor:
    """The results of replicas [n, b / replicas] as one tensor [n, b]."""
    return tf.concat(strategy.experimental_local_results(results), 1)
