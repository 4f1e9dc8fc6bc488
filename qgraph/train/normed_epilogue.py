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


INPUTS = 4  # of the op of an epilogue, behind x: bias, high and two thresholds


@dataclass(frozen=True)
class PendingNorm:
    """The norm of a layer's output that the ops behind the layer compute.

    gain: of the norm. constant: a sum added to the output before the norm. updates: receives those
    of the running statistics.
    """

    norm: OutputNorm
    gain: Tensor
    constant: Tensor
    momentum: float
    updates: list[Update] = field(default_factory=list)


def normed_epilogue(
    pending: PendingNorm,
    ops: TFModule,
    inputs: Sequence[Tensor],
    attributes: Mapping[str, object],
    factor: Tensor | None = None,
) -> Tensor:
    """The result behind the layer. inputs: those of the op of an epilogue, [x, bias, ...].

    factor: the layer's output is x times these numbers [channels]; None if it is x.
    """
    import tensorflow as tf

    x, *others = inputs
    norm, gain, constant = pending.norm, pending.gain, pending.constant
    shift = gain * (norm.mean - constant)  # what normalized values are centred on
    origin = shift if factor is None else tf.math.divide_no_nan(shift, factor)
    # Not results of the function with a gradient: updates of the running statistics would depend on
    # all of its inputs. TensorFlow's graph optimizer takes that for the order of reads and updates,
    # then removes the dependence, and a variable is updated while it is read.
    mean, variance = ops.qgraph_moments(*map(tf.stop_gradient, (x, origin)))
    parameters = [gain] if factor is None else [gain, factor]
    run = _run(ops, norm, mean, variance, attributes)
    y = run(x, shift, *others, *parameters)
    if factor is not None:
        mean, variance = mean * factor, variance * tf.square(factor)
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
    """The result of x, shift, the other inputs of the op, gain and possibly a factor.

    mean, variance: the moments of x.
    """
    import tensorflow as tf

    def scale_of(variance: Tensor, gain: Tensor, factor: Tensor | None = None) -> Tensor:
        if factor is None:
            return norm.scale_of_batch(variance, gain)
        return factor * norm.scale_of_batch(variance * tf.square(factor), gain)

    def run(x: Tensor, shift: Tensor, *given: Tensor) -> TFModule:
        kept, shift, *others = map(tf.stop_gradient, (x, shift, *given))
        fixed, parameters = others[:INPUTS], others[INPUTS:]
        scale = scale_of(variance, *parameters)
        y = ops.qgraph_normed_epilogue(kept, *fixed, mean, scale, shift, **attributes)

        def gradient(upstream: Tensor) -> tuple[Tensor, ...]:
            by_x, *by_others, by_scale, by_shift = ops.qgraph_normed_epilogue_grad(
                upstream, kept, *fixed, mean, scale, shift, **attributes
            )
            with tf.GradientTape() as tape:
                tape.watch((variance, *parameters))
                again = scale_of(variance, *parameters)
            by_variance, *by_parameters = tape.gradient(again, (variance, *parameters), by_scale)
            # d variance / dx is 2 (x - mean) / count, and d mean / dx is 1 / count. Not quotients:
            # where the batch size is known, the graph optimizer would rewrite them as products.
            share = 1.0 / tf.cast(tf.size(kept) // tf.size(mean), tf.float32)
            slope, offset = 2.0 * by_variance * share, -scale * by_shift * share
            by_x = ops.qgraph_add_normalized(by_x, kept, mean, slope, offset)
            return (by_x, by_shift, *by_others, *by_parameters)

        return y, gradient

    return tf.custom_gradient(run)


def epilogue_of_product(
    ops: TFModule, factor: Tensor, inputs: Sequence[Tensor], attributes: Mapping[str, object]
) -> Tensor:
    """The epilogue of x times a factor [channels]. inputs: as in `normed_epilogue`.

    The result, and the gradients of x and of thresholds, are the same bits as with a separate
    product. The gradient of the factor is summed in float64.
    """
    import tensorflow as tf

    def run(x: Tensor, factor: Tensor, *others: Tensor) -> TFModule:
        kept, factor, *fixed = map(tf.stop_gradient, (x, factor, *others))
        norm = (tf.zeros_like(factor), factor, tf.zeros_like(factor))
        y = ops.qgraph_normed_epilogue(kept, *fixed, *norm, **attributes)

        def gradient(upstream: Tensor) -> tuple[Tensor, ...]:
            by_x, *by_others, by_factor, _ = ops.qgraph_normed_epilogue_grad(
                upstream, kept, *fixed, *norm, **attributes
            )
            return by_x, by_factor, *by_others

        return y, gradient

    x, *others = inputs
    return tf.custom_gradient(run)(x, factor, *others)
