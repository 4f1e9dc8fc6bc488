"""Add the float parts of a network to the ONNX model of its integer program.

A network may have float ops before its integer program, after it, like a softmax, and between its
segments. With them, a model in values has the network's own inputs and outputs, so it can replace
the float model. A model in codes has the ops between segments only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import onnx

from qgraph.backends.io_names import io_names_of
from qgraph.backends.network_forms import Network
from qgraph.backends.onnx.boundary_models import codes_of_values, values_of_codes
from qgraph.backends.onnx.builder import OnnxModelBuilder, element_type, metadata_of
from qgraph.backends.onnx.floats.emission import FloatEmission
from qgraph.backends.onnx.floats.lower import LOWERINGS
from qgraph.backends.onnx.floats.opaque import opset_of
from qgraph.backends.onnx.floats.write import biases
from qgraph.backends.sized_graphs import sized_graph
from qgraph.ir.graph import Graph, Node
from qgraph.ir.order import inputs_first
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Shape
from qgraph.names import onnx_name
from qgraph.numerics import quantized_constant
from qgraph.program import Entry
from qgraph.program.islands import last_exits


def reserved_names(graph: Graph) -> list[str]:
    """The names of inputs and outputs of the whole model."""
    io_names = io_names_of(graph, onnx_name)
    return [*io_names.inputs.values(), *io_names.outputs.values()]


def with_float_parts(core: onnx.ModelProto, network: Network) -> onnx.ModelProto:
    """The model `core` of a network's program, in values, with the float ops around it.

    Raises UnsupportedError naming the first float op that ONNX does not support.
    """
    return _WholeModel(core, network).model()


def with_islands(core: onnx.ModelProto, network: Network) -> onnx.ModelProto:
    """The model `core` of a network's program, in codes, with the float islands in it.

    Its inputs are codes of the first segment, its outputs codes of exits that the network's outputs
    need. Raises UnsupportedError naming the first float op that ONNX does not support.
    """
    return _CodesModel(core, network).model()


class _FloatModel(ABC):
    """A model of the program and of float ops that it exchanges values with."""

    def __init__(self, core: onnx.ModelProto, network: Network) -> None:
        self.core, self.meta, self.program = core, metadata_of(core), network.program
        self.graph = graph = sized_graph(network)
        self.io_names = io_names_of(graph, onnx_name)
        opsets = {one.domain: one.version for one in core.opset_import}
        opset = max(opsets.pop(""), opset_of(graph))
        self.builder = OnnxModelBuilder(
            core.graph.name, opset, [*_names(core), *reserved_names(graph)]
        )
        self.builder.domains = opsets
        fused = {
            name: node
            for name, node in biases(graph).items()
            if name not in network.program.tensors
        }
        self.floats = FloatEmission(graph, self.builder, self.io_names.inputs, fused)

    def model(self) -> onnx.ModelProto:
        nodes = self._nodes()
        self.begin(nodes)
        for node in nodes:
            self._write(node)
        for entry in self.fed():
            self.feed(entry)
        self.end()
        builder = self.builder
        builder.nodes = _in_order([*builder.nodes, *self.core.graph.node])
        for value in self._inner_ends():
            builder.known.append(value)
        builder.adopt(self.core.graph.initializer)
        return builder.model(self.meta)

    @abstractmethod
    def begin(self, nodes: Sequence[Node]) -> None:
        """Add inputs of the model, and the values of inputs and exits that float nodes take."""

    @abstractmethod
    def fed(self) -> list[Entry]:
        """The entries that the model computes."""

    @abstractmethod
    def feed(self, entry: Entry) -> None:
        """Compute the input of the program for an entry from its float value."""

    @abstractmethod
    def end(self) -> None:
        """Add outputs of the model."""

    @abstractmethod
    def wanted(self) -> list[str]:
        """The values that float nodes have to compute."""

    def _nodes(self) -> list[Node]:
        """The float nodes that `wanted` needs, in order."""
        found: set[str] = set()
        waiting = self.wanted()
        while waiting:
            value = waiting.pop()
            node = self.graph.producer(value)
            if value not in self.program.exits and node.name not in found:
                found.add(node.name)
                waiting += node.inputs
        return [node for node in self.graph.topological() if node.name in found]

    def _write(self, node: Node) -> None:
        constants = self.floats.constants
        if node.op == "quantize" and node.inputs[0] in constants:
            constants[node.name] = quantized_constant(constants[node.inputs[0]], spec_of(node))
        elif node.op != "input":
            LOWERINGS.of(node.op, node.name)(self.floats, node)

    def _inner_ends(self) -> list[onnx.ValueInfoProto]:
        """Types of entries and exits of the program, except inputs and outputs of the model."""
        own = {value.name for value in (*self.builder.inputs, *self.builder.outputs)}
        values = (*self.core.graph.input, *self.core.graph.output, *self.core.graph.value_info)
        return [value for value in values if value.name not in own]


class _WholeModel(_FloatModel):
    """Values in and out, as the float network has them."""

    def begin(self, nodes: Sequence[Node]) -> None:
        for name in self.graph.inputs:
            kind = self.graph.types[name]
            self.builder.input(self.io_names.inputs[name], kind.dtype, _open(kind.shape))
            self.floats.put(name, self.io_names.inputs[name])
        for name in self.program.exits:
            self.floats.put(name, self.meta["exits"][name]["value"])

    def fed(self) -> list[Entry]:
        return [*self.program.entries]

    def feed(self, entry: Entry) -> None:
        wanted = self.meta["entries"][entry.tensor]["input"]
        held = self.floats.get(entry.source)
        if wanted != held:
            self.builder.append("Identity", [held], wanted)

    def wanted(self) -> list[str]:
        return [*(e.source for e in self.program.entries), *self.graph.outputs.values()]

    def end(self) -> None:
        """Outputs in the network's order; the core computes some of them already."""
        given = {value.name for value in self.core.graph.output}
        for public, value in self.graph.outputs.items():
            name, kind = self.io_names.outputs[public], self.graph.types[value]
            if name not in given and name not in self.io_names.inputs.values():
                self.builder.append("Identity", [self.floats.get(value)], name)
            self.builder.output(name, kind.dtype, kind.shape)


class _CodesModel(_FloatModel):
    """Codes in and out; float inputs are there only if an island takes them."""

    def begin(self, nodes: Sequence[Node]) -> None:
        inner = {self.meta["entries"][entry.tensor]["input"] for entry in self.fed()}
        self.builder.inputs.extend(v for v in self.core.graph.input if v.name not in inner)
        for node in nodes:
            if node.op == "input":
                kind = self.graph.types[node.name]
                self.builder.input(self.io_names.inputs[node.name], kind.dtype, _open(kind.shape))
                self.floats.put(node.name, self.io_names.inputs[node.name])
        read = {value for node in nodes for value in node.inputs}
        for name in (n for n in self.program.exits if n in read):
            held, exponent = self.meta["exits"][name]["value"], self.program.tensors[name].exponent
            self.floats.put(name, values_of_codes(self.builder, held, exponent, f"{name}/float"))

    def fed(self) -> list[Entry]:
        return [entry for entry in self.program.entries if entry.segment]

    def feed(self, entry: Entry) -> None:
        tensor = self.program.tensors[entry.tensor]
        held = self.floats.get(entry.source)
        wide = self.builder.add("Cast", [held], f"{held}/float64", to=element_type("float64"))
        codes = codes_of_values(self.builder, wide, entry.spec, tensor.exponent)
        wanted = self.meta["entries"][entry.tensor]["input"]
        self.builder.append("Cast", [codes], wanted, to=element_type(tensor.storage))

    def wanted(self) -> list[str]:
        return [entry.source for entry in self.fed()]

    def end(self) -> None:
        kept = {self.meta["exits"][name]["value"] for name in last_exits(self.graph, self.program)}
        self.builder.outputs.extend(v for v in self.core.graph.output if v.name in kept)


def _in_order(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The nodes, each after those that it needs, otherwise in the given order."""
    by_name = {node.name: node for node in nodes}
    makers = {value: node.name for node in nodes for value in node.output}
    needs = inputs_first(
        by_name, lambda name: [makers[v] for v in by_name[name].input if v in makers]
    )
    return [by_name[name] for name in needs]


def _names(model: onnx.ModelProto) -> list[str]:
    """All names of values in a model."""
    graph = model.graph
    named: Sequence[onnx.ValueInfoProto] = [*graph.input, *graph.initializer]
    return [*(one.name for one in named), *(name for n in graph.node for name in n.output)]


def _open(shape: Shape | None) -> tuple[int | str | None, ...] | None:
    """A shape whose open batch has the same name in all models."""
    return ("N", *shape[1:]) if shape and shape[0] is None else shape
