"""A float graph as an ONNX file with channels first, as exporters of other tools write it."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from qgraph.backends.onnx.floats.write import float_model
from qgraph.foreign import Proto
from qgraph.ir.graph import Graph
from qgraph.passes import Pass, PassManager
from qgraph.recipes import CLEAN
from qgraph.transforms.fold_batch_norm import FoldBatchNorm

CHANNELS_FIRST, CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
# Batch norms behind an activation stay.
FOLDED: tuple[Pass, ...] = (*CLEAN, FoldBatchNorm())


def float_onnx(model: Graph) -> bytes:
    """An ONNX file of `model` that takes images [n, channels, height, width].

    Inputs with another number of axes, and outputs, stay as they are. Raises UnsupportedError for
    an op that ONNX has no form of.
    """
    graph = model.copy()
    PassManager(FOLDED).run(graph)
    made = float_model(graph)
    for fed in made.graph.input:
        if len(fed.type.tensor_type.shape.dim) == len(CHANNELS_FIRST):
            _take_channels_first(made.graph, fed)
    onnx.checker.check_model(made, full_check=True)
    data: bytes = made.SerializeToString(deterministic=True)
    return data


def _take_channels_first(graph: Proto, fed: Proto) -> None:
    """Change the layout of an input, and remove transposes of it that are no longer needed."""
    sizes = fed.type.tensor_type.shape.dim
    turned = [onnx.TensorShapeProto.Dimension.FromString(d.SerializeToString()) for d in sizes]
    for size, axis in zip(sizes, CHANNELS_FIRST, strict=True):
        size.CopyFrom(turned[axis])
    readers = [node for node in graph.node if fed.name in node.input]
    back = f"{fed.name}, channels last"
    for node in readers:
        if node.op_type == "Transpose" and _axes(node) == CHANNELS_FIRST:
            _replace(graph.node, node.output[0], fed.name)
            graph.node.remove(node)
        else:
            _replace([node], fed.name, back)
    if any(back in node.input for node in graph.node):
        last = onnx.helper.make_node("Transpose", [fed.name], [back], perm=CHANNELS_LAST)
        graph.node.insert(0, last)


def _axes(node: Proto) -> tuple[int, ...]:
    """The order of axes of a transpose."""
    return tuple(onnx.helper.get_node_attr_value(node, "perm"))


def _replace(nodes: Sequence[Proto], value: str, by: str) -> None:
    """Let nodes read another value."""
    for node in nodes:
        for place, name in enumerate(node.input):
            if name == value:
                node.input[place] = by
