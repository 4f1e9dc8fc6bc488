"""Policies of rsl_rl and Isaac Lab.

Sources: isaac-sim/IsaacLab `source/isaaclab_rl/isaaclab_rl/rsl_rl/exporter.py` (opset 11, batch
of 1, names of inputs and outputs, order of states), leggedrobotics/rsl_rl
`rsl_rl/models/rnn_model.py` (GRU) and `rsl_rl/modules/normalization.py` (mean, deviation and
epsilon of 0.01), unitreerobotics/unitree_rl_lab `deploy/robots/g1/config/policy/velocity/v0/
exported/policy.onnx` (a file from training: Gemm and Elu, `actor.0.weight`).
"""

from __future__ import annotations

from onnx import ModelProto

from tests.helpers.exported_policies.written_graph import WrittenGraph, tensor

OBSERVATION, ACTIONS, STATE = 6, 3, 5
EPSILON = 0.01


def _normalized(g: WrittenGraph, folded: bool) -> str:
    """(x - mean) / (std + epsilon); the exporter folds the sum if it folds constants."""
    mean = g.drawn("normalizer._mean", 1, OBSERVATION)
    std = abs(g.rng.normal(1, 0.4, (1, OBSERVATION))) + 0.2
    centred = g.node("Sub", "obs", mean)
    if folded:
        return g.node("Div", centred, g.weight("onnx::Div_16", std + EPSILON))
    epsilon = g.constant(EPSILON)
    return g.node("Div", centred, g.node("Add", g.weight("normalizer._std", std), epsilon))


def feed_forward(opset: int = 11, folded: bool = True) -> ModelProto:
    """`obs` [1, n] -> `actions` [1, m]; opset 11 from Isaac Lab, 18 from rsl_rl itself."""
    g = WrittenGraph(opset)
    x = _normalized(g, folded)
    g.layers(x, "actor", (OBSERVATION, 16, 8, ACTIONS), "Elu", to="actions")
    return g.model([tensor("obs", 1, OBSERVATION)], [tensor("actions", 1, ACTIONS)])


def _rnn(
    g: WrittenGraph, kind: str, x: str, rows: int, states: list[str], ends: list[str], layer: int
) -> str:
    gates = {"LSTM": 4, "GRU": 3}[kind]
    kernels = [
        g.drawn(f"onnx::{kind}_w{layer}", 1, gates * STATE, rows),
        g.drawn(f"onnx::{kind}_r{layer}", 1, gates * STATE, STATE),
        g.drawn(f"onnx::{kind}_b{layer}", 1, 2 * gates * STATE, scale=0.1),
    ]
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    made = f"/rnn/{kind}_{layer}_output_0"
    g.several(kind, [x, *kernels, "", *states], [made, *ends], hidden_size=STATE, **more)
    return g.node("Squeeze", made, axes=[1])  # the axis of directions


def recurrent(kind: str = "LSTM", layers: int = 1) -> ModelProto:
    """`obs` and states [layers, 1, state] -> `actions` and the next states."""
    g = WrittenGraph(11)
    states = ["h", "c"] if kind == "LSTM" else ["h"]
    x = g.node("Unsqueeze", _normalized(g, folded=True), axes=[0])
    ends: dict[str, list[str]] = {name: [] for name in states}
    for layer in range(layers):
        starts = [f"{name}_in" for name in states]
        made = [f"{name}_out" for name in states]
        if layers > 1:
            first, after = g.constant([layer], "int64"), g.constant([layer + 1], "int64")
            axis = g.constant([0], "int64")
            starts = [g.node("Slice", start, first, after, axis) for start in starts]
            made = [f"/rnn/{name}_{layer}" for name in states]
        rows = STATE if layer else OBSERVATION
        x = _rnn(g, kind, x, rows, starts, made, layer)
        for name, end in zip(states, made, strict=True):
            ends[name].append(end)
    if layers > 1:
        for name in states:
            g.node("Concat", *ends[name], to=f"{name}_out", axis=0)
    x = g.node("Squeeze", x, axes=[0])
    g.layers(x, "actor", (STATE, 8, ACTIONS), "Elu", to="actions")
    shape = (layers, 1, STATE)
    return g.model(
        [tensor("obs", 1, OBSERVATION), *(tensor(f"{name}_in", *shape) for name in states)],
        [tensor("actions", 1, ACTIONS), *(tensor(f"{name}_out", *shape) for name in states)],
    )
