"""Data parallelism: a learner's step on several devices, each with its part of the batch.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from qgraph.errors import UsageError
from qgraph.foreign import Tensor
from qgraph.ir.types import Array


def gpu_count() -> int:
    return len(tf.config.list_physical_devices("GPU"))


def strategy_of(replicas: int) -> tf.distribute.Strategy:
    """A strategy for `replicas` GPUs; without GPUs, for as many parts of the CPU, to try it out.

    Raises UsageError if there are fewer GPUs, or if it is too late to divide the CPU.
    """
    if replicas == 1:
        return tf.distribute.get_strategy()
    gpus = gpu_count()
    if 0 < gpus < replicas:
        raise UsageError(f"{replicas} replicas, but {gpus} GPUs")
    if not gpus:
        _divide_processor(replicas)
    kind = "GPU" if gpus else "CPU"
    return tf.distribute.MirroredStrategy([f"{kind}:{i}" for i in range(replicas)])


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


def _divide_processor(parts: int) -> None:
    (processor,) = tf.config.list_physical_devices("CPU")
    configuration = [tf.config.LogicalDeviceConfiguration() for _ in range(parts)]
    try:
        tf.config.set_logical_device_configuration(processor, configuration)
    except RuntimeError:
        if len(tf.config.list_logical_devices("CPU")) < parts:
            raise UsageError(
                "TensorFlow has started already, so the CPU cannot be divided"
            ) from None
