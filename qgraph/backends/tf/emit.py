"""Write a graph as a TensorFlow GraphDef.

Tensors contain values, not codes: `code * 2^-f` in float32, which is exact. A sum or product whose
bound exceeds float32's 2^24 is computed in float64, and the next quantizer converts it back.
"""

from __future__ import annotations

from collections.abc import Mapping

from qgraph.backends.io_names import IONames, io_names_of
from qgraph.backends.tf.builder import Dims, DType, GraphDefBuilder
from qgraph.backends.tf.emission import Emission
from qgraph.backends.tf.lower import LOWERINGS
from qgraph.exact.bounds import Bound, bounds
from qgraph.foreign import AttrValue, Proto
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of, value_of
from qgraph.names import tensorflow_name
from qgraph.numerics import quantized_constant
from qgraph.quant.topology import value_exponent
from qgraph.rewrite.functions import written_out


def tf_io_names(graph: Graph) -> IONames:
    """Names of inputs and outputs in the emitted graph: those of the user, if TensorFlow allows."""
    return io_names_of(graph, tensorflow_name)


def emit_graph_def(graph: Graph, known: Mapping[str, Bound] | None = None) -> Proto:
    """The GraphDef of a graph: float, or quantized and calibrated.

    Placeholders are named after the graph's inputs, results after its public outputs, as far as
    TensorFlow allows (`tf_io_names`). known: the graph's bounds, if the caller has them. Raises
    UnsupportedError naming the first op that TensorFlow does not support, ExactnessError for an
    accumulator that exceeds float64.
    """
    return _emission(graph, known).builder.graph_def


def _emission(graph: Graph, known: Mapping[str, Bound] | None = None) -> Emission:
    graph = written_out(graph)
    found = bounds(graph) if known is None else known
    io_names = tf_io_names(graph)
    emission = Emission(graph, GraphDefBuilder(io_names.taken), found)
    for node in graph.topological():
        _emit(emission, node, io_names)
    _emit_outputs(emission, io_names)
    return emission


def _emit(emission: Emission, node: Node, io_names: IONames) -> None:
    builder = emission.builder
    emission.exponents[node.name] = value_exponent(node, emission.exponents)
    if node.op == "const":
        emission.constants[node.name] = value_of(node)
    elif node.op == "input":
        kind = emission.graph.types[node.name]
        attrs: dict[str, AttrValue] = {"dtype": DType(kind.dtype), "shape": Dims(kind.shape)}
        made = builder.add_exactly("Placeholder", io_names.inputs[node.name], **attrs)
        emission.tensors[node.name] = made
    elif node.op == "quantize" and node.inputs[0] in emission.constants:
        constant = emission.constants[node.inputs[0]]
        emission.constants[node.name] = quantized_constant(constant, spec_of(node))
    else:
        lower = LOWERINGS.of(node.op, node.name)
        emission.dtypes[node.name] = emission.width(node)
        if node.op in ("cast", "opaque") or not emission.graph.types[node.name].is_float:
            emission.dtypes[node.name] = emission.graph.types[node.name].dtype
        tensor = lower(emission, node)
        waits_for = (emission.tensors[n] for n in node.control if n in emission.tensors)
        builder.graph_def.node[-1].input.extend(f"^{n.partition(':')[0]}" for n in waits_for)
        emission.tensors[node.name] = tensor
        for index, value in enumerate(node.values[1:], start=1):
            emission.tensors[value] = f"{tensor}:{index}"


def _emit_outputs(emission: Emission, io_names: IONames) -> None:
    graph, builder = emission.graph, emission.builder
    for public, value in graph.outputs.items():
        wanted = graph.types[value].dtype
        tensor = emission.tensor(value, wanted)
        if io_names.outputs[public] != tensor:
            builder.add_exactly("Identity", io_names.outputs[public], [tensor], T=DType(wanted))


def tensor_names(graph: Graph, known: Mapping[str, Bound] | None = None) -> dict[str, str]:
    """The tensor of each value that the emitted graph computes, except constants."""
    tensors = _emission(graph, known).tensors
    values = [v for n in graph.topological() for v in n.values]
    return {value: tensors[value] for value in values if value in tensors}
