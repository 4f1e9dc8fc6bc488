"""Layers that store the codes of their input for the backward pass, in a quarter of the memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qgraph.foreign import Tensor, TFModule
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.pool import PoolAttrs
from qgraph.ir.reading import spec_if_any
from qgraph.ir.types import QuantSpec
from qgraph.train.forward import Piece
from qgraph.train.fused import fused_ops
from qgraph.train.quantizer import chosen, places_on_gpu

LAYERS = ("conv2d", "depthwise_conv2d", "matmul", "max_pool")
MOVES = ("pad", "reshape", "max_pool")  # keep codes and their range
BYTE = 8
LARGEST_WINDOW = 255  # elements of a window that the fused max pool can tell apart


def code_ops() -> TFModule | None:
    """The fused ops on codes in bytes, or None. They have kernels for the CPU only."""
    if chosen().ops is None or places_on_gpu():
        return None
    ops = fused_ops().ops
    return ops if hasattr(ops, "qgraph_normalize_codes") else None


@dataclass(frozen=True)
class InputCodes:
    """How the input x of a layer is stored as codes `x * 2^f`, one byte each.

    x must lie on the grid of `spec` and its threshold `log2_t`, a scalar. ops: as `code_ops`
    returns them; without them, TensorFlow's own ops store the same codes.
    """

    spec: QuantSpec
    log2_t: Tensor
    ops: TFModule | None = None

    @property
    def attributes(self) -> dict[str, object]:
        """Attributes of the fused ops."""
        return {"bits": self.spec.bits, "signed": self.spec.signed}

    def pack(self, x: Tensor) -> Tensor:
        """The codes of x, float32; int8 or uint8, and with fused ops always uint8."""
        import tensorflow as tf

        if self.ops is not None:
            return self.ops.qgraph_pack_codes(x, self.log2_t, **self.attributes)
        return tf.cast(x / self._step(), tf.int8 if self.spec.signed else tf.uint8)

    def unpack(self, codes: Tensor) -> Tensor:
        """x, float32."""
        import tensorflow as tf

        if self.ops is not None:
            return self.ops.qgraph_unpack_codes(codes, self.log2_t, **self.attributes)
        return tf.cast(codes, tf.float32) * self._step()

    def _step(self) -> Tensor:
        import tensorflow as tf

        exponent = tf.math.ceil(self.log2_t) - float(self.spec.bits - self.spec.signed)
        return tf.pow(2.0, exponent)


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


def separate_windows(graph: Graph, node: Node) -> Mapping[str, int] | None:
    """The windows of a max pool that do not overlap, without padding; None for other nodes."""
    attributes, shape = node.attributes, graph.types[node.inputs[0]].shape
    if node.op != "max_pool" or not isinstance(attributes, PoolAttrs) or shape is None:
        return None
    height, width = shape[1:3]
    if height is None or width is None:
        return None
    size, strides = attributes.ksize, attributes.strides
    if any(map(any, attributes.pads((height, width)))) or size[0] * size[1] > LARGEST_WINDOW:
        return None
    if strides[0] < size[0] or strides[1] < size[1]:
        return None
    names = ("height", "width", "row_stride", "column_stride")
    return dict(zip(names, (*size, *strides), strict=True))


def keeping_codes(piece: Piece, codes: InputCodes) -> Piece:
    """Wrap `piece`, a layer of x and optional weights, so that it keeps codes of x for backward.

    Results and gradients are the same, unless TensorFlow's oneDNN merges explicit padding into only
    one of the two convolutions.
    """
    import tensorflow as tf

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        kept = codes.pack(x)

        def gradient(upstream: Tensor) -> Tensor:
            # Waits for the upstream gradient; otherwise x would be computed again too early.
            with tf.control_dependencies([upstream]):
                again = (codes.unpack(tf.identity(kept)), *weights)
            with tf.GradientTape() as tape:
                tape.watch(again)
                (y,) = piece(*again)
            return tape.gradient(y, again, upstream)

        (y,) = piece(*map(tf.stop_gradient, (x, *weights)))
        return y, gradient

    made = tf.custom_gradient(run)
    return lambda *inputs: (made(*inputs),)


def pool_keeping_codes(piece: Piece, codes: InputCodes, windows: Mapping[str, int]) -> Piece:
    """Wrap a max pool as `keeping_codes` does. Its gradient is computed from the codes.

    codes: with ops. windows: as `separate_windows` returns them. Where several elements of a window
    are the largest, the gradient goes to the first one, as in TensorFlow.
    """
    import tensorflow as tf

    def run(x: Tensor) -> Tensor:
        kept = codes.pack(x)

        def gradient(upstream: Tensor) -> Tensor:
            assert codes.ops is not None
            return codes.ops.qgraph_max_pool_codes_grad(
                upstream, kept, signed=codes.spec.signed, **windows
            )

        (y,) = piece(tf.stop_gradient(x))
        return y, gradient

    made = tf.custom_gradient(run)
    return lambda x: (made(x),)
