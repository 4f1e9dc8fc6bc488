"""The ops that depend on a scale, with gradients that a SavedModel keeps.

Only the process that registers a gradient knows it. A SavedModel keeps the graph of a function that
`tf.custom_gradient` was given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from qgraph.choices import QuantizerForm
from qgraph.foreign import Tensor, TFModule
from qgraph.train.quantizer import Spec, chosen, quantize
from qgraph.train.tqt import ScaledOps

Function = Callable[[Tensor, Tensor], Tensor]


def stock_ops() -> ScaledOps:
    """TensorFlow's own ops. Quantizers with the same bits share a function: small files."""
    import tensorflow as tf

    @cache
    def function(spec: Spec, thresholds: tuple[int, ...]) -> Function:
        def run(x: Tensor, log2_t: Tensor) -> Tensor:
            given = (spec.bits, spec.signed, spec.rounding)
            return quantize(x, log2_t, *given, form=QuantizerForm.NATIVE)

        any_shape = tf.TensorSpec(None, tf.float32)
        made: Function = tf.function(run, [any_shape, tf.TensorSpec(thresholds, tf.float32)])
        return made

    def shared(x: Tensor, log2_t: Tensor, bits: int, signed: bool, rounding: str) -> Tensor:
        y = function(Spec(bits, signed, rounding, 0), tuple(log2_t.shape))(x, log2_t)
        return tf.ensure_shape(y, x.shape)

    return ScaledOps.stock(shared)


def library_ops() -> ScaledOps:
    """The fused ops of the library. Raises UsageError if it cannot be loaded."""
    ops: TFModule = chosen(QuantizerForm.FUSED).ops

    def fused(x: Tensor, log2_t: Tensor, bits: int, signed: bool, rounding: str) -> Tensor:
        attributes = Spec(bits, signed, rounding, 0).attributes
        return _with_gradient(ops.qgraph_quantize, ops.qgraph_quantize_grad, attributes)(x, log2_t)

    def epilogue(*inputs: Tensor, **attributes: object) -> Tensor:
        return _with_gradient(ops.qgraph_epilogue, ops.qgraph_epilogue_grad, attributes)(*inputs)

    return ScaledOps(fused, lambda: epilogue)


def _with_gradient(op: TFModule, gradient: TFModule, attributes: dict[str, object]) -> TFModule:
    import tensorflow as tf

    def run(*inputs: Tensor) -> Tensor:
        def gradients(upstream: Tensor) -> Tensor:
            return tuple(gradient(upstream, *inputs, **attributes))

        return op(*map(tf.stop_gradient, inputs), **attributes), gradients

    return tf.custom_gradient(run)
