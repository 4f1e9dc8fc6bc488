"""Ends of blocks, where training compares a quantized network with its float network.

Source: block-wise reconstruction (Li et al., 2021, BRECQ, section 3.2). Here all blocks learn in
the same step, from the inputs that the quantized network gives them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qgraph.foreign import Tensor
from qgraph.ir.graph import Graph, Node
from qgraph.quant.topology import QUANTIZERS
from qgraph.rewrite.constants import is_layer

LAYERS = 2  # of a block, at least


@dataclass(frozen=True)
class BlockEnd:
    """A value of the quantized graph, and the value of the float graph that it stands for."""

    value: str
    teacher: str


def block_ends(graph: Graph, floating: Graph) -> tuple[BlockEnd, ...]:
    """The last values before layers that all that follows depends on, LAYERS layers apart or more.

    graph: calibrated. floating: its float graph, with the same names of values. Values behind the
    last layer are not among them. A network has none if branches lie beside each other everywhere,
    as in a U-Net.
    """
    found: list[BlockEnd] = []
    layers, end = 0, None
    for node, is_narrow in _narrow(graph):
        if is_layer(node):
            if end is not None and layers >= LAYERS:
                found.append(end)
                layers = 0
            layers, end = layers + 1, None
        teacher = _teacher(graph, node)
        if is_narrow and teacher in floating.nodes:
            end = BlockEnd(node.name, teacher)
    return tuple(found)


def relative_error(found: Tensor, wanted: Tensor) -> Tensor:
    """The energy of the difference over that of `wanted`, float32; 0 if `wanted` is all zero."""
    import tensorflow as tf

    found, wanted = tf.cast(found, tf.float32), tf.cast(wanted, tf.float32)
    noise = tf.reduce_sum(tf.math.squared_difference(found, wanted))
    return tf.math.divide_no_nan(noise, tf.reduce_sum(tf.square(wanted)))


def _narrow(graph: Graph) -> Iterator[tuple[Node, bool]]:
    """Nodes that depend on inputs, and whether no value before them is used behind them."""
    varying = set(graph.inputs)
    order = []
    for node in graph.topological():
        if node.op == "input" or not varying.isdisjoint(node.inputs):
            varying.update(node.values)
            order.append(node)
    last = {value: i for i, node in enumerate(order) for value in node.inputs}
    last.update(dict.fromkeys(graph.outputs.values(), len(order)))
    reach = 0
    for i, node in enumerate(order):
        yield node, reach <= i and node.outputs == 1 and node.op != "input"
        reach = max(reach, *(last.get(value, 0) for value in node.values))


def _teacher(graph: Graph, node: Node) -> str:
    """The value that a chain of quantizers starts from."""
    while node.op in QUANTIZERS:
        node = graph.producer(node.inputs[0])
    return node.name
