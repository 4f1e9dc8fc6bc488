"""Where a number that is none came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qgraph.train.model import TrainingGraph

Tensor = Any


def first_not_finite(
    graph: TrainingGraph, inputs: Mapping[str, Tensor], batch_statistics: bool
) -> str | None:
    """The first value, in the order of the graph, that holds NaN or infinity; None if none does."""
    import tensorflow as tf

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def flags() -> dict[str, Tensor]:
        values, _ = graph.values(inputs, batch_statistics=batch_statistics)
        return {
            name: tf.reduce_all(tf.math.is_finite(value))
            for name, value in values.items()
            if value.dtype.is_floating
        }

    found = flags()
    names = [name for node in graph.graph.topological() for name in node.values]
    return next((n for n in names if n in found and not bool(np.asarray(found[n]))), None)
