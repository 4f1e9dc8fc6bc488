"""A batch norm of a layer's input with the statistics of the batch, on codes in bytes.

Such a batch norm was folded into the layer behind it. Forward, the codes of its input are kept, one
byte each, and normalized; nothing else is kept. `InputNorm.corrected` computes the same, up to the
rounding of sums and of float arithmetic.
"""

from __future__ import annotations

from qgraph.foreign import Tensor
from qgraph.train.compact import InputCodes
from qgraph.train.forward import Piece
from qgraph.train.norms import InputNorm, Update


def normed_input(
    norm: InputNorm, layer: Piece, codes: InputCodes, momentum: float, updates: list[Update]
) -> Piece:
    """`layer` as a function of its input before the norm, and of its weights.

    codes: of this input, with ops. updates: receives those of the running statistics.
    """
    import tensorflow as tf

    def run(x: Tensor, *weights: Tensor) -> tuple[Tensor]:
        assert codes.ops is not None
        centre, gain = tf.identity(norm.mean), tf.ones_like(norm.mean)
        mean, variance = codes.ops.qgraph_moments(tf.stop_gradient(x), centre)
        y = _normalized(norm, layer, codes, (mean, variance, centre, gain))(x, *weights)
        constant = tf.constant(0.0)
        updates.extend(norm.updates_from(x, mean, variance, gain, constant, momentum))
        return (y,)

    return run


def _normalized(
    norm: InputNorm,
    layer: Piece,
    codes: InputCodes,
    statistics: tuple[Tensor, Tensor, Tensor, Tensor],
) -> Piece:
    """The layer of the normalized x, with a gradient. statistics: mean and variance of x, the value
    that normalized values are centred on, and ones; all [channels]."""
    import tensorflow as tf

    mean, variance, centre, gain = statistics
    ops, given = codes.ops, codes.attributes
    assert ops is not None

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        kept = codes.pack(tf.stop_gradient(x))
        scale = norm.scale_of_batch(variance, gain)

        def normalized(kept: Tensor) -> Tensor:
            return ops.qgraph_normalize_codes(kept, codes.log2_t, mean, scale, centre, **given)

        def gradient(upstream: Tensor) -> tuple[Tensor, ...]:
            # Waits for the upstream gradient; otherwise values would be normalized again too early.
            with tf.control_dependencies([upstream]):
                again = (normalized(tf.identity(kept)), *weights)
            with tf.GradientTape() as tape:
                tape.watch(again)
                (y,) = layer(*again)
            by_normalized, *by_weights = tape.gradient(y, again, upstream)
            with tf.GradientTape() as tape:
                tape.watch(variance)
                of_batch = norm.scale_of_batch(variance, gain)
            slope = tape.gradient(of_batch, variance)
            by_x = ops.qgraph_normalize_codes_grad(
                by_normalized, kept, codes.log2_t, mean, scale, slope, **given
            )
            return (by_x, *by_weights)

        (y,) = layer(normalized(kept), *map(tf.stop_gradient, weights))
        return y, gradient

    made: Piece = tf.custom_gradient(run)
    return made
