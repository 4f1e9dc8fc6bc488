"""How many threads a learner takes."""

from __future__ import annotations

import os

from qgraph.errors import UsageError


def use_threads(count: int) -> None:
    """How many threads TensorFlow takes; it asks only once. Raises UsageError where it is late."""
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(count)
        tf.config.threading.set_inter_op_parallelism_threads(count)
    except RuntimeError:
        raise UsageError("TensorFlow is at work already: threads cannot be set now") from None


def used_threads() -> int:
    """How many it takes: as many as this process has cores, unless told otherwise."""
    import tensorflow as tf

    told = int(tf.config.threading.get_intra_op_parallelism_threads())
    return told or len(os.sched_getaffinity(0))
