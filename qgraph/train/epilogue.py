"""The ops after a layer as one fused op: quantizer, bias, activation, quantizer.

The separate nodes compute the same. They run if the fused ops do not load, under
`jit_compile=True`, in float64, and where a value between them is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from qgraph.foreign import Tensor, TFModule
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.attributes import SlidingAttrs
from qgraph.ir.reading import marks_of, spec_of
from qgraph.ir.types import Overflow, Rounding
from qgraph.train.quantizer import chosen

MAX_CHANNELS = 4096  # sums of more channels in blocks would take as much memory as a tensor


@dataclass(frozen=True)
class Epilogue:
    """`outer(activation(inner(x) + bias))`, where `inner` and `outer` are quantizers.

    nodes: names of all nodes in order. activation: `none`, `relu`, `relu6`, or `clip`, which clips
    to 0 and the value `high` [channels]. product: a layer before `inner` that multiplies each
    channel by a number, as a batch norm does that could not be folded; it is the first node then.
    """

    inner: Node
    bias: str
    activation: str
    high: str | None
    outer: Node
    nodes: tuple[str, ...]
    product: Node | None = None

    @property
    def x(self) -> str:
        """The input value."""
        return (self.product or self.inner).inputs[0]

    @property
    def layer(self) -> str:
        """The value that `inner` quantizes."""
        return self.inner.inputs[0]

    def without_product(self) -> Epilogue:
        """The ops behind the product."""
        return replace(self, nodes=self.nodes[1:], product=None) if self.product else self

    @property
    def attributes(self) -> dict[str, object]:
        """Attributes of the fused op."""
        inner = spec_of(self.inner)
        outer = spec_of(self.outer)
        return {
            "inner_bits": inner.bits,
            "inner_signed": inner.signed,
            "bits": outer.bits,
            "signed": outer.signed,
            "rounding": outer.rounding,
            "activation": self.activation,
        }

    def inputs(self, values: Mapping[str, Tensor], six: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The tensors x, bias and high for the fused op. six: the upper limit of ReLU6."""
        import tensorflow as tf

        x, bias = values[self.x], values[self.bias]
        if self.high is not None:
            return x, bias, values[self.high]
        return (
            x,
            bias,
            tf.fill(tf.shape(bias), six) if self.activation == "relu6" else tf.zeros([0]),
        )


def epilogues(graph: Graph) -> list[Epilogue]:
    """The epilogues of a graph whose inner values have no other users."""
    return [
        found
        for node in graph.topological()
        if node.op == "quantize" and (found := _ending_at(graph, node)) is not None
    ]


def _ending_at(graph: Graph, outer: Node) -> Epilogue | None:
    nodes = [outer]

    def before() -> Node:
        """The node before the first one; the first one itself if its input has other users."""
        value = nodes[0].inputs[0]
        if graph.use_count(value) == 1:
            nodes.insert(0, graph.producer(value))
        return nodes[0]

    activation, high, node = "none", None, before()
    if node.op == "minimum":
        activation, high, node = "clip", node.inputs[1], before()
        if node.op != "relu":
            return None
    elif node.op in ("relu", "relu6"):
        activation = node.op
    if activation != "none":
        node = before()
    if node.op != "bias_add":
        return None
    bias, inner = node.inputs[1], before()
    if inner.op != "quantize" or not _fits(graph, inner, outer, bias, high):
        return None
    product = before()
    names = tuple(node.name for node in nodes)
    if product is inner:
        return Epilogue(inner, bias, activation, high, outer, names)
    if not _multiplies_channels(graph, product, bias):
        return Epilogue(inner, bias, activation, high, outer, names[1:])
    return Epilogue(inner, bias, activation, high, outer, names, product)


def _multiplies_channels(graph: Graph, node: Node, bias: str) -> bool:
    """Whether a node multiplies each channel by a number. bias: a vector of these channels."""
    if not marks_of(node).batch_norm:
        return False
    (channels,) = graph.types[bias].shape or (None,)
    known = {"mul": (channels,), "depthwise_conv2d": (1, 1, channels, 1)}
    if graph.types[node.inputs[1]].shape != known.get(node.op):
        return False
    attributes = node.attributes
    if not isinstance(attributes, SlidingAttrs):
        return True
    return (
        attributes.strides == (1, 1)
        and graph.types[node.name].shape == graph.types[node.inputs[0]].shape
    )


def _fits(graph: Graph, inner: Node, outer: Node, bias: str, high: str | None) -> bool:
    shape = graph.types[bias].shape
    if not shape or len(shape) != 1 or (shape[0] or MAX_CHANNELS + 1) > MAX_CHANNELS:
        return False
    same_shape = high is None or graph.types[high].shape == shape
    specs = [spec_of(inner), spec_of(outer)]
    if not all(isinstance(s.exponent, int) and s.overflow == Overflow.SATURATE for s in specs):
        return False
    return same_shape and specs[0].rounding == specs[1].rounding != Rounding.DOUBLE


def epilogue_op() -> TFModule | None:
    """The fused op if it is available, else None. It has gradients for all five inputs."""
    return getattr(chosen().ops, "qgraph_epilogue", None)
