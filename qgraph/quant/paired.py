"""Run a quantized network and its float network together, layer by layer.

A visitor may change the constants of a layer before it runs, and later layers see the corrected
values. It is one sweep, so the work is linear in the size of the network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qgraph.interpret import run_node
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, QuantSpec
from qgraph.parallel import Each, over_chunks
from qgraph.progress import Steps, silent_steps
from qgraph.quant.graph_values import GraphValues
from qgraph.quant.samples.data import chunk_count, chunk_inputs
from qgraph.quant.samples.spill import ChunkStore, memory_bound
from qgraph.rewrite.constants import is_layer


@dataclass(frozen=True)
class PairedLayer:
    """A layer, or its `bias_add`, that the quantized graph is about to run.

    `inputs`: chunks of its first input in the quantized graph. `wanted`: chunks of its result in
    the float graph.
    """

    node: Node
    inputs: Sequence[Array]
    wanted: Sequence[Array]


Visit = Callable[[PairedLayer, Each], None]


def run_paired(
    graph: Graph,
    floating: Graph,
    data: Mapping[str, Array],
    visit: Visit,
    on_node: Steps = silent_steps,
) -> None:
    """Call `visit(layer, each)` at every layer and every bias of a layer, in order.

    graph: calibrated. floating: its float graph, with the same names of values; layers that it
    lacks are run without a visit. data: arrays [samples, ...] by input name. `visit` may change
    constants of the layer (`set_constant`); `each` maps over chunks, which may be overwritten once
    `visit` has returned.
    """
    chunks = chunk_inputs(graph, data)
    order = [node.name for node in graph.topological()]
    with over_chunks(chunk_count(chunks)) as each:
        memory = memory_bound() // 2
        found, wanted = (GraphValues(g, chunks, each, memory) for g in (graph, floating))
        ran: set[str] = set()  # nodes of the float graph
        for done, name in enumerate(order, start=1):
            node = graph.nodes[name]
            if name in floating.nodes:
                for earlier in _not_run(floating, name, ran):
                    wanted.run(earlier)
                if layer_of(graph, node) and found.varies(node.inputs[0]):
                    inputs = found.chunks(node.inputs[0])
                    visit(PairedLayer(node, inputs, wanted.chunks(name)), each)
                    found.refresh(graph.nodes[name].inputs[1])
            found.run(graph.nodes[name])
            on_node(done, len(order))


def _not_run(graph: Graph, name: str, ran: set[str]) -> Iterator[Node]:
    """A node, behind those that it depends on and that are not in `ran` yet; adds them to it.

    The quantized graph may lack some of these, such as those of a mask that has become codes.
    """
    waiting = [name]
    while waiting:
        node = graph.nodes[waiting[-1]]
        missing = [p.name for p in map(graph.producer, node.inputs) if p.name not in ran]
        waiting += missing
        if not missing:
            waiting.pop()
            if node.name not in ran:
                ran.add(node.name)
                yield node


def layer_of(graph: Graph, node: Node) -> Node | None:
    """The layer that `node` is, or whose bias it is; None for other nodes and for pools."""
    if node.op == "bias_add":
        node = graph.producer(node.inputs[0])
        while node.op == "quantize":
            node = graph.producer(node.inputs[0])
    return node if is_layer(node) else None


def quantized_constant_of(graph: Graph, layer: Node) -> tuple[Node, Array] | None:
    """The quantizer of a layer's weights or bias, and its constant, if there is one."""
    quantizer = graph.producer(layer.inputs[1])
    value = graph.constant(quantizer.inputs[0]) if quantizer.op == "quantize" else None
    return None if value is None else (quantizer, value)


def set_constant(graph: Graph, layer: str, value: Array, spec: QuantSpec | None = None) -> None:
    """Give a layer new weights or a new bias; other users of the old constant keep it."""
    node = graph.nodes[layer]
    quantizer, value = graph.producer(node.inputs[1]), np.asarray(value, order="C")
    const, attrs = quantizer.inputs[0], {"spec": spec or spec_of(quantizer)}
    if graph.use_count(const) == graph.use_count(quantizer.name) == 1:
        graph.set_attrs(const, value=value)
        graph.set_attrs(quantizer.name, **attrs)
        return
    own = graph.add("quantize", graph.const(value, const), name=quantizer.name, attrs=attrs)
    graph.replace(replace(node, inputs=(node.inputs[0], own)))
    if not graph.use_count(quantizer.name):
        graph.remove(quantizer.name)


class PairedRun:
    """One graph on all chunks. Values that depend on no input are computed where they are used."""

    def __init__(
        self,
        graph: Graph,
        chunks: Mapping[str, Sequence[Array]],
        each: Each,
        memory: int | None = None,
    ) -> None:
        self.graph = graph
        self.chunks = chunks
        self.each = each
        self.values = ChunkStore(chunk_count(chunks), memory)
        self.left = Counter(v for node in graph.nodes.values() for v in node.inputs)

    def step(self, name: str) -> None:
        node = self.graph.nodes[name]
        if node.op == "input":
            self.values.add(name, self.chunks[name])
        if not any(v in self.values for v in node.inputs):
            return
        constants = {v: self._constant(v) for v in node.inputs if v not in self.values}

        def at(i: int) -> None:
            inputs = [constants[v] if v in constants else self.values[v][i] for v in node.inputs]
            for value, result in zip(node.values, run_node(node, inputs), strict=True):
                self.values.put(value, i, result)

        for _ in self.each(at, range(self.values.count)):
            pass

    def release(self, name: str) -> None:
        """Release values that no node after `name` needs."""
        node = self.graph.nodes.get(name)
        if node is None:
            return
        self.left.subtract(node.inputs)
        for value in (*node.inputs, *node.values):
            if self.left[value] <= 0 and value in self.values:
                del self.values[value]

    def _constant(self, value: str) -> Array:
        node = self.graph.producer(value)
        results = run_node(node, [self._constant(v) for v in node.inputs])
        return results[node.values.index(value)]
