"""Add the float parts of a network around its integer program to the ONNX model.

A network may have float ops before its integer program and after it, like a softmax. With them, the
model has the network's own inputs and outputs, so it can replace the float model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import onnx

from qgraph.backends.io_names import io_names_of
from qgraph.backends.network_forms import Network
from qgraph.backends.onnx.builder import OnnxModelBuilder, metadata_of
from qgraph.backends.onnx.floats.emission import FloatEmission
from qgraph.backends.onnx.floats.lower import LOWERINGS
from qgraph.backends.onnx.floats.opaque import opset_of
from qgraph.backends.onnx.floats.write import biases
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Shape, TensorType
from qgraph.names import onnx_name
from qgraph.numerics import quantized_constant


def reserved_names(graph: Graph) -> list[str]:
    """The names of inputs and outputs of the whole model."""
    io_names = io_names_of(graph, onnx_name)
    return [*io_names.inputs.values(), *io_names.outputs.values()]


def is_program_alone(network: Network) -> bool:
    """Whether inputs and outputs of the network are those of its program, one for one."""
    graph, program = network.graph, network.program
    sources = sorted(entry.source for entry in program.entries)
    values = sorted(graph.outputs.values())
    alone = sources == sorted(graph.inputs) and values == sorted(program.exits)
    return alone or not graph.outputs


def with_float_parts(core: onnx.ModelProto, network: Network) -> onnx.ModelProto:
    """The model `core` of a network's program, with the float ops around it.

    Raises UnsupportedError naming the first float op that ONNX does not support.
    """
    return _FloatModel(core, network).model()


class _FloatModel:
    def __init__(self, core: onnx.ModelProto, network: Network) -> None:
        self.core, self.meta, self.program = core, metadata_of(core), network.program
        self.graph = graph = _sized(network)
        self.io_names = io_names_of(graph, onnx_name)
        opset = max(core.opset_import[0].version, opset_of(graph))
        self.builder = OnnxModelBuilder(
            core.graph.name, opset, [*_names(core), *reserved_names(graph)]
        )
        fused = {
            name: node
            for name, node in biases(graph).items()
            if name not in network.program.tensors
        }
        self.floats = FloatEmission(graph, self.builder, self.io_names.inputs, fused)

    def model(self) -> onnx.ModelProto:
        graph, builder = self.graph, self.builder
        for name in graph.inputs:
            kind = graph.types[name]
            builder.input(self.io_names.inputs[name], kind.dtype, _open(kind.shape))
            self.floats.put(name, self.io_names.inputs[name])
        head = graph.ancestors(e.source for e in self.program.entries)
        self._write(node for node in graph.topological() if node.name in head)
        self._feed_entries()
        before, self.builder.nodes = builder.nodes, []
        for name in self.program.exits:
            self.floats.put(name, self.meta["exits"][name]["value"])
        self._write(node for node in self._tail() if node.name not in head)
        self._give_outputs()
        builder.nodes = [*before, *self.core.graph.node, *builder.nodes]
        for value in self._inner_ends():
            builder.known.append(value)
        builder.adopt(self.core.graph.initializer)
        return builder.model(self.meta)

    def _write(self, nodes: Iterable[Node]) -> None:
        constants = self.floats.constants
        for node in nodes:
            if node.op == "quantize" and node.inputs[0] in constants:
                constants[node.name] = quantized_constant(constants[node.inputs[0]], spec_of(node))
            elif node.op != "input":
                LOWERINGS.of(node.op, node.name)(self.floats, node)

    def _feed_entries(self) -> None:
        for entry in self.program.entries:
            wanted, held = (
                self.meta["entries"][entry.tensor]["input"],
                self.floats.get(entry.source),
            )
            if wanted != held:
                self.builder.append("Identity", [held], wanted)

    def _tail(self) -> list[Node]:
        """The nodes that outputs need, in order, without those of the program."""
        wanted: set[str] = set()
        waiting = [*self.graph.outputs.values()]
        while waiting:
            value = waiting.pop()
            node = self.graph.producer(value)
            if value not in self.program.exits and node.name not in wanted:
                wanted.add(node.name)
                waiting += node.inputs
        return [node for node in self.graph.topological() if node.name in wanted]

    def _give_outputs(self) -> None:
        """Outputs in the network's order; the core computes some of them already."""
        given = {value.name for value in self.core.graph.output}
        for public, value in self.graph.outputs.items():
            name, kind = self.io_names.outputs[public], self.graph.types[value]
            if name not in given and name not in self.io_names.inputs.values():
                self.builder.append("Identity", [self.floats.get(value)], name)
            self.builder.output(name, kind.dtype, kind.shape)

    def _inner_ends(self) -> list[onnx.ValueInfoProto]:
        """Types of entries and exits of the program, except inputs and outputs of the model."""
        own = {value.name for value in (*self.builder.inputs, *self.builder.outputs)}
        values = (*self.core.graph.input, *self.core.graph.output, *self.core.graph.value_info)
        return [value for value in values if value.name not in own]


def _names(model: onnx.ModelProto) -> list[str]:
    """All names of values in a model."""
    graph = model.graph
    named: Sequence[onnx.ValueInfoProto] = [*graph.input, *graph.initializer]
    return [*(one.name for one in named), *(name for n in graph.node for name in n.output)]


def _sized(network: Network) -> Graph:
    """The graph with inputs of the program's sizes; an open batch stays open."""
    graph, nodes = network.graph.copy(), []
    for name in graph.inputs:
        known, sample = graph.types[name], network.sample.get(name)
        shape = known.shape
        if shape and sample is not None and sample.ndim == len(shape):
            batch = None if network.program.batch_free else 1
            shape = (shape[0] or batch, *sample.shape[1:])
        node = graph.nodes[name]
        nodes.append(replace(node, attrs={**node.attrs, "type": TensorType(known.dtype, shape)}))
    graph.replace_all(nodes)
    return graph


def _open(shape: Shape | None) -> tuple[int | str | None, ...] | None:
    """A shape whose open batch has the same name in all models."""
    return ("N", *shape[1:]) if shape and shape[0] is None else shape
