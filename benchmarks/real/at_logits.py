"""Networks that end at their logits, without a final softmax.

Other tools round probabilities to 256 steps, which hides the noise of the layers before.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import utils

from qgraph.ir.graph import Graph

MOVES = ("reshape", "squeeze", "identity")


def at_logits(graph: Graph) -> Graph:
    """A copy whose outputs are the inputs of a final softmax, and those that have none."""
    made = graph.copy()
    made.outputs = {name: _logits(graph, value) for name, value in graph.outputs.items()}
    return made


def _logits(graph: Graph, output: str) -> str:
    node = graph.producer(output)
    while node.op in MOVES:
        node = graph.producer(node.inputs[0])
    return node.inputs[0] if node.op == "softmax" else output


def onnx_at_logits(path: Path) -> bytes:
    """An ONNX file as it is, up to the softmax that its only output comes from, if one does."""
    model = onnx.load(path)
    (output,) = model.graph.output
    last = next(node for node in model.graph.node if output.name in node.output)
    if last.op_type != "Softmax":
        return path.read_bytes()
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in constants]
    inferred = onnx.shape_inference.infer_shapes(model)
    cut: bytes = (
        utils.Extractor(inferred).extract_model(inputs, [last.input[0]]).SerializeToString()
    )
    return cut
