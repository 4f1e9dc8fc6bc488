"""Tasks in qgraph and onnx-graphsurgeon: write and edit ONNX models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from benchmarks.graph_algorithms.timing import Task
from qgraph.backends.onnx.builder import OnnxModelBuilder
from qgraph.backends.onnx.runners import with_outputs


def onnx_tasks(nodes: int) -> Iterator[Task]:
    model = own_model(nodes)
    inner = [f"sum{i}" for i in range(0, nodes, 10)]
    yield Task(
        "write an ONNX model",
        nodes,
        lambda: len(own_model(nodes).graph.node),
        lambda _: len(library_model(nodes).graph.node),
    )
    yield Task(
        "add outputs to an ONNX model",
        nodes,
        lambda: len(with_outputs(model, inner).graph.output),
        lambda _: len(library_with_outputs(model, inner).graph.output),
    )


def constants(nodes: int) -> Iterator[np.ndarray[Any, np.dtype[np.float32]]]:
    return (np.full(8, i, np.float32) for i in range(nodes))


def own_model(nodes: int) -> onnx.ModelProto:
    """A checked model with additions of constants."""
    builder = OnnxModelBuilder("sums", 18, ["x", "y"])
    builder.input("x", "float32", ("N", 8))
    value = "x"
    for i, number in enumerate(constants(nodes)):
        value = builder.add("Add", [value, builder.constant(number, "c")], f"sum{i}")
    builder.append("Identity", [value], "y")
    builder.output("y", "float32", ("N", 8))
    return builder.model({})


def library_model(nodes: int) -> onnx.ModelProto:
    """The same model by onnx-graphsurgeon, checked."""
    x = value = gs.Variable("x", np.float32, ("N", 8))
    graph = gs.Graph(name="sums", opset=18, inputs=[x])
    for i, number in enumerate(constants(nodes)):
        inputs, value = [value, gs.Constant(f"c{i}", number)], gs.Variable(f"sum{i}")
        graph.nodes.append(gs.Node("Add", f"sum{i}", inputs=inputs, outputs=[value]))
    y = gs.Variable("y", np.float32, ("N", 8))
    graph.nodes.append(gs.Node("Identity", "y", inputs=[value], outputs=[y]))
    graph.outputs = [y]
    model: onnx.ModelProto = gs.export_onnx(graph, ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def library_with_outputs(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    graph = gs.import_onnx(model)
    tensors = graph.tensors()
    graph.outputs += [tensors[name] for name in names]
    made: onnx.ModelProto = gs.export_onnx(graph, do_type_check=False)
    return made


def kept(nodes: int) -> str:
    """A note on the metadata that a model keeps when its outputs are changed."""
    model = own_model(nodes)
    own, library = with_outputs(model, ["sum0"]), library_with_outputs(model, ["sum0"])
    return (
        f"metadata properties: {len(model.metadata_props)} in the model, "
        f"{len(own.metadata_props)} kept by qgraph, "
        f"{len(library.metadata_props)} by onnx-graphsurgeon"
    )
