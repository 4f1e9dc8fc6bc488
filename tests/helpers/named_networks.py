"""Small networks whose tensors have given names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, helper

from tests.helpers.onnx_graphs import model_of

INPUTS, OUTPUTS, TENSORS = 2, 2, 13


def named_network(names: Sequence[str]) -> ModelProto:
    """Two inputs, two outputs, a long branch: `names` are inputs, outputs, then the other
    tensors.
    """
    x, z, y, side, w, b, conv, relu, joined, flat, v, narrow, gate = names
    rng = np.random.default_rng(5)

    def weights(*shape):
        return rng.normal(0, 0.4, shape).astype(np.float32)

    nodes = [
        helper.make_node("Conv", [x, w, b], [conv], pads=[1] * 4),
        helper.make_node("Relu", [conv], [relu]),
        helper.make_node("Concat", [relu, z], [joined], axis=1),
        helper.make_node("MaxPool", [joined], [side], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", [joined], [flat]),
        helper.make_node("MatMul", [flat, v], [narrow]),
        helper.make_node("Sigmoid", [narrow], [gate]),
        helper.make_node("Mul", [narrow, gate], [y]),
    ]
    constants = {w: weights(4, 3, 3, 3), b: weights(4), v: weights(96, 5)}
    return model_of(nodes, {x: ("N", 3, 4, 4), z: ("N", 2, 4, 4)}, (y, side), constants)


def branching_network(names: Sequence[str]) -> ModelProto:
    """Matrix products around a concat that a product at the end reads again; 12 names."""
    a, relu_a, b, relu_b, joined, c, relu_c, d, relu_d, gated, x, y = names
    rng = np.random.default_rng(6)
    sizes = {"wa": (8, 8), "wb": (8, 8), "wc": (16, 16), "wd": (16, 16), "we": (16, 8)}
    weights = {k: rng.normal(0, 0.3, s).astype(np.float32) for k, s in sizes.items()}
    nodes = [
        helper.make_node("MatMul", [x, "wa"], [a]),
        helper.make_node("Relu", [a], [relu_a]),
        helper.make_node("MatMul", [x, "wb"], [b]),
        helper.make_node("Relu", [b], [relu_b]),
        helper.make_node("Concat", [relu_a, relu_b], [joined], axis=1),
        helper.make_node("MatMul", [joined, "wc"], [c]),
        helper.make_node("Relu", [c], [relu_c]),
        helper.make_node("MatMul", [relu_c, "wd"], [d]),
        helper.make_node("Relu", [d], [relu_d]),
        helper.make_node("Mul", [relu_d, joined], [gated]),
        helper.make_node("MatMul", [gated, "we"], [y]),
    ]
    return model_of(nodes, {x: ("N", 8)}, (y,), weights)


def samples_for(names: Sequence[str], count: int = 8) -> dict[str, np.ndarray]:
    """Inputs of `named_network`, by name."""
    rng = np.random.default_rng(7)
    shapes = dict(zip(names[:INPUTS], [(3, 4, 4), (2, 4, 4)], strict=True))
    return {n: rng.normal(0, 1, (count, *s)).astype(np.float32) for n, s in shapes.items()}
