"""A batch norm with the statistics of the batch and the ops behind its layer, as fused ops.

The layer's output is read twice forward, for its moments and for the result, and nothing else is
kept for the backward pass. `RunningStatistics.normalized` and the separate nodes compute the same,
up to the rounding of sums and of float arithmetic: TensorFlow's op scales before it subtracts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qgraph.foreign import Tensor, TFModule
from qgraph.train.epilogue import epilogue_op
from qgraph.train.fused import fused_ops
from qgraph.train.norms import OutputNorm, Update
from qgraph.train.quantizer import places_on_gpu


def norm_ops() -> TFModule | None:
    """The ops if they are available, else None. They have kernels for the CPU only."""
    if epilogue_op() is None or places_on_gpu():
        return None
    ops = fused_ops().ops
    return ops if hasattr(ops, "qgraph_normed_epilogue") else None


@dataclass(frozen=True)
class PendingNorm:
    """The norm of a layer's output that the ops behind the layer compute.

    constant: a sum added to the output before the norm. updates: receives those of the running
    statistics.
    """

    norm: OutputNorm
    constant: Tensor
    momentum: float
    updates: list[Update] = field(default_factory=list)


def normed_epilogue(
    pending: PendingNorm,
    ops: TFModule,
    inputs: Sequence[Tensor],
    attributes: Mapping[str, object],
) -> Tensor:
    """The result behind the layer. inputs: those of the op of an epilogue, [x, bias, ...]."""
    import tensorflow as tf

    x, *others = inputs
    norm, constant = pending.norm, pending.constant
    gain = norm.gain()
    origin = gain * (norm.mean - constant)  # also what normalized values are centred on
    # Not results of the function with a gradient: updates of the running statistics would depend on
    # all of its inputs. TensorFlow's graph optimizer takes that for the order of reads and updates,
    # then removes the dependence, and a variable is updated while it is read.
    mean, variance = ops.qgraph_moments(*map(tf.stop_gradient, (x, origin)))
    y = _run(ops, norm, mean, variance, attributes)(x, gain, origin, *others)
    of_batch = x, mean, variance, gain
    pending.updates.extend(norm.updates_from(*of_batch, constant, pending.momentum))
    return y


def _run(
    ops: TFModule,
    norm: OutputNorm,
    mean: Tensor,
    variance: Tensor,
    attributes: Mapping[str, object],
) -> TFModule:
    """The result of x, gain, origin and the other inputs. mean, variance: the moments of x."""
    import tensorflow as tf

    def run(x: Tensor, gain: Tensor, origin: Tensor, *others: Tensor) -> TFModule:
        kept, gain, origin, *fixed = map(tf.stop_gradient, (x, gain, origin, *others))
        scale = norm.scale_of_batch(variance, gain)
        y = ops.qgraph_normed_epilogue(kept, *fixed, mean, scale, origin, **attributes)

        def gradient(upstream: Tensor) -> tuple[Tensor, ...]:
            by_x, *by_others, by_scale, by_shift = ops.qgraph_normed_epilogue_grad(
                upstream, kept, *fixed, mean, scale, origin, **attributes
            )
            with tf.GradientTape() as tape:
                tape.watch((variance, gain))
                again = norm.scale_of_batch(variance, gain)
            by_variance, by_gain = tape.gradient(again, (variance, gain), by_scale)
            # d variance / dx is 2 (x - mean) / count, and d mean / dx is 1 / count. Not quotients:
            # where the batch size is known, the graph optimizer would rewrite them as products.
            share = 1.0 / tf.cast(tf.size(kept) // tf.size(mean), tf.float32)
            slope, offset = 2.0 * by_variance * share, -scale * by_shift * share
            by_x = ops.qgraph_add_normalized(by_x, kept, mean, slope, offset)
            return (by_x, by_gain, by_shift, *by_others)

        return y, gradient

    return tf.custom_gradient(run)
