"""Layers that store the codes of their input for the backward pass, in a quarter of the memory."""

from __future__ import annotations

from qgraph.foreign import Tensor
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_if_any
from qgraph.ir.types import QuantSpec
from qgraph.train.forward import Piece

LAYERS = ("conv2d", "depthwise_conv2d", "matmul", "max_pool")
MOVES = ("pad", "reshape", "max_pool")  # keep codes and their range
BYTE = 8


def coded_inputs(graph: Graph) -> dict[str, Node]:
    """The quantizer of the input of each layer whose input codes fit in one byte, by layer."""
    found = {}
    for node in graph.topological():
        if node.op not in LAYERS or graph.constant(node.inputs[0]) is not None:
            continue
        before = graph.producer(node.inputs[0])
        while before.op in MOVES:
            before = graph.producer(before.inputs[0])
        spec = spec_if_any(before)
        if before.op == "quantize" and spec is not None and _is_byte(spec):
            found[node.name] = before
    return found


def _is_byte(spec: QuantSpec) -> bool:
    """Whether codes fit in one byte, on one scale."""
    return spec.bits <= BYTE and isinstance(spec.exponent, int)


def keeping_codes(piece: Piece, spec: QuantSpec, log2_t: Tensor) -> Piece:
    """Wrap `piece`, a layer of x and optional weights, so that it keeps codes of x for backward.

    The codes `x * 2^f` take one byte each. x must lie on the grid of `spec` and its threshold.
    Results and gradients are the same, unless TensorFlow's oneDNN merges explicit padding into only
    one of the two convolutions.
    """
    import tensorflow as tf

    exponent = tf.math.ceil(tf.stop_gradient(log2_t)) - float(spec.bits - spec.signed)
    step = tf.pow(2.0, exponent)
    byte = tf.int8 if spec.signed else tf.uint8

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        codes = tf.cast(x / step, byte)

        def gradient(upstream: Tensor) -> Tensor:
            # Waits for the upstream gradient; otherwise x would be computed again too early.
            with tf.control_dependencies([upstream]):
                again = (tf.cast(tf.identity(codes), x.dtype) * step, *weights)
            with tf.GradientTape() as tape:
                tape.watch(again)
                (y,) = piece(*again)
            return tape.gradient(y, again, upstream)

        (y,) = piece(*map(tf.stop_gradient, (x, *weights)))
        return y, gradient

    made = tf.custom_gradient(run)
    return lambda *inputs: (made(*inputs),)
