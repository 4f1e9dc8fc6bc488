"""Find the first NaN or infinity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.foreign import Tensor
from qgraph.train.model import TrainingGraph


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


def refusing_nan(
    graph: TrainingGraph,
    inputs: Mapping[str, Tensor],
    loss: Tensor,
    gradients: Sequence[Tensor],
    batch_statistics: bool,
) -> list[Tensor]:
    """`gradients` with a check, for a step that is being traced.

    If the loss or a gradient is not finite, the step raises an InvalidArgumentError that names
    `first_not_finite`, before any variable has changed.
    """
    import tensorflow as tf

    def message(*tensors: Tensor) -> str:
        fed = dict(zip(inputs, tensors, strict=True))
        name = first_not_finite(graph, fed, batch_statistics)
        what = "the loss or a gradient" if name is None else f"`{name}`, first of all values,"
        return (
            f"{what} is NaN or infinite: no variable was changed; smaller learning rates may help"
        )

    def refused() -> Tensor:
        text = tf.py_function(message, list(inputs.values()), tf.string)
        return tf.debugging.Assert(False, [text])

    # Adam keeps squares of gradients: an overflow there would spoil a later step.
    sums = [loss, *(tf.reduce_sum(tf.square(gradient)) for gradient in gradients)]
    finite = tf.reduce_all(tf.math.is_finite(tf.stack(sums)))
    with tf.control_dependencies([tf.cond(finite, tf.no_op, refused)]):
        return [tf.identity(gradient) for gradient in gradients]
