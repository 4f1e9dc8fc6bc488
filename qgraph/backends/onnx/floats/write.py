"""A float graph as an ONNX model."""

from __future__ import annotations

import onnx

from qgraph.backends.io_names import io_names_of
from qgraph.backends.onnx.builder import OnnxModelBuilder
from qgraph.backends.onnx.floats.emission import FloatEmission
from qgraph.backends.onnx.floats.lower import LOWERINGS
from qgraph.backends.onnx.floats.opaque import opset_of
from qgraph.errors import UnsupportedError, first_line
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.linear import COMPUTE
from qgraph.names import onnx_name


def float_model(graph: Graph) -> onnx.ModelProto:
    """The checked model. An open batch stays open; layouts and names of inputs and outputs do not
    change.

    Raises UnsupportedError naming the first node that ONNX does not support, and why.
    """
    io_names = io_names_of(graph, onnx_name)
    reserved = [*io_names.inputs.values(), *io_names.outputs.values()]
    model = OnnxModelBuilder(onnx_name(graph.name), opset_of(graph), reserved)
    emission = FloatEmission(graph, model, io_names.inputs, biases(graph))
    for node in graph.topological():
        LOWERINGS.of(node.op, node.name)(emission, node)
    for public, value in graph.outputs.items():
        if io_names.outputs[public] not in io_names.inputs.values():
            model.append("Identity", [emission.get(value)], io_names.outputs[public])
        model.output(io_names.outputs[public], graph.types[value].dtype, graph.types[value].shape)
    try:
        return model.model({"form": "float"})
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise UnsupportedError(
            f"ONNX refuses the model: {first_line(error)}", node=graph.name
        ) from error


def biases(graph: Graph) -> dict[str, Node]:
    """The bias after a layer that has no other use, by the layer's name."""
    found: dict[str, Node] = {}
    for node in graph.nodes.values():
        if node.op != "bias_add" or graph.constant(node.inputs[1]) is None:
            continue
        layer = graph.producer(node.inputs[0])
        alone = graph.use_count(layer.name) == 1 and not graph.is_output(layer.name)
        if layer.op in COMPUTE and alone and graph.types[layer.name].is_float:
            found[layer.name] = node
    return found
