"""The float graph of a network with the sizes of its program."""

from __future__ import annotations

from dataclasses import replace

from qgraph.backends.network_forms import Network
from qgraph.ir.graph import Graph
from qgraph.ir.types import TensorType


def sized_graph(network: Network, batch: int | None = None) -> Graph:
    """The graph with inputs of the program's sizes.

    batch: the size of an open batch; None if it stays open.
    """
    graph, nodes = network.graph.copy(), []
    for name in graph.inputs:
        known, sample = graph.types[name], network.sample.get(name)
        shape = known.shape
        if shape and sample is not None and sample.ndim == len(shape):
            open_size = batch if network.program.batch_free else 1
            shape = (shape[0] or open_size, *sample.shape[1:])
        elif shape and shape[0] is None:
            shape = (batch, *shape[1:])
        node = graph.nodes[name]
        nodes.append(replace(node, attrs={**node.attrs, "type": TensorType(known.dtype, shape)}))
    graph.replace_all(nodes)
    return graph
