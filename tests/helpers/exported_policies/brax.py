"""Policies of Brax and MuJoCo Playground.

Sources: google-deepmind/mujoco_playground `mujoco_playground/experimental/
brax_network_to_onnx.ipynb` and its output `mujoco_playground/experimental/sim2sim/onnx/
go1_policy.onnx` (tf2onnx at opset 11: reciprocals instead of a division, Gemm with kernels as in
TensorFlow, swish as two nodes, Split without sizes, tanh of the first half), and
`mujoco_playground/experimental/brax_torch_onnx.ipynb` (layer norms after ELU, `std` as a second
output).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from onnx import ModelProto

from tests.helpers.exported_policies.written_graph import WrittenGraph, tensor

OBSERVATION, ACTIONS = 6, 3


def swish_network() -> ModelProto:
    """`obs` [1, n] -> `continuous_actions` [1, m]."""
    g = WrittenGraph(11, producer="tf2onnx")
    mean = g.drawn("mlp_1/sub/ReadVariableOp:0", OBSERVATION)
    x = g.node("Sub", "obs", mean, to="mlp_1/sub:0")
    factors = 1 / (np.abs(g.rng.normal(1, 0.4, OBSERVATION)) + 0.2)
    x = g.node("Mul", x, g.weight("ConstantFolding/mlp_1/truediv_recip:0", factors))
    sizes = (OBSERVATION, 16, 8, 2 * ACTIONS)
    for index, (rows, columns) in enumerate(pairwise(sizes)):
        scope = f"mlp_1/MLP_0_1/hidden_{index}_1"
        kernel = g.drawn(f"{scope}/Cast/ReadVariableOp:0", rows, columns, scale=rows**-0.5)
        bias = g.drawn(f"{scope}/BiasAdd/ReadVariableOp:0", columns, scale=0.1)
        x = g.node("Gemm", x, kernel, bias, transA=0, transB=0)
        if columns != sizes[-1]:
            x = g.activation(x, "Swish")
    g.several("Split", [x], ["mlp_1/split:0", "mlp_1/split:1"], axis=-1)
    g.node("Tanh", "mlp_1/split:0", to="continuous_actions")
    return g.model([tensor("obs", 1, OBSERVATION)], [tensor("continuous_actions", 1, ACTIONS)])


def normed_network() -> ModelProto:
    """`obs` -> `mean`, `std`, from PyTorch at opset 17 with LayerNormalization."""
    g = WrittenGraph(17)
    x = g.node("Sub", "obs", g.drawn("obs_mean", OBSERVATION))
    x = g.node("Div", x, g.weight("onnx::Div_19", g.rng.uniform(0.5, 2, OBSERVATION)))
    for index, (rows, columns) in enumerate(((OBSERVATION, 16), (16, 8))):
        x = g.activation(g.linear(x, f"net.{3 * index}", rows, columns), "Elu")
        gamma = g.weight(f"net.{3 * index + 2}.weight", g.rng.normal(1, 0.2, columns))
        beta = g.drawn(f"net.{3 * index + 2}.bias", columns, scale=0.1)
        x = g.node("LayerNormalization", x, gamma, beta, axis=-1, epsilon=1e-6)
    x = g.linear(x, "net.6", 8, 2 * ACTIONS)
    sizes = g.constant([ACTIONS, ACTIONS], "int64")
    g.several("Split", [x, sizes], ["/Split_output_0", "/Split_output_1"], axis=-1)
    g.node("Tanh", "/Split_output_0", to="mean")
    g.node("Exp", "/Split_output_1", to="std")
    outputs = [tensor("mean", 1, ACTIONS), tensor("std", 1, ACTIONS)]
    return g.model([tensor("obs", 1, OBSERVATION)], outputs)
