"""A policy of TorchRL: one step without an axis of samples.

Source: the reference of `torchrl.modules.export_onnx_policy` on docs.pytorch.org/rl (opset 18, one
unbatched step, inputs and outputs named after their keys).
"""

from __future__ import annotations

from onnx import ModelProto

from tests.helpers.exported_policies.written_graph import WrittenGraph, tensor

OBSERVATION, ACTIONS = 6, 3


def unbatched() -> ModelProto:
    """`observation` [n] -> `action` [m], by products of a vector and a matrix."""
    g, x = WrittenGraph(18), "observation"
    for index, (rows, columns) in enumerate(((OBSERVATION, 16), (16, ACTIONS))):
        kernel = g.drawn(f"val_{index}", rows, columns, scale=rows**-0.5)
        bias = g.drawn(f"module.{index}.bias", columns, scale=0.1)
        last = columns == ACTIONS
        x = g.node("Add", g.node("MatMul", x, kernel), bias, to="loc" if last else None)
        x = g.node("Tanh", x, to="action" if last else None)
    return g.model([tensor("observation", OBSERVATION)], [tensor("action", ACTIONS)])
