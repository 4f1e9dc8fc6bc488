"""Policies of rl_games.

Sources: Denys88/rl_games `notebooks/train_and_export_onnx_example_continuous.ipynb` (names, batch
of 1, a traced module whose constants are not folded), `rl_games/algos_torch/running_mean_std.py`
(statistics in float64, clip to 5) and `rl_games/algos_torch/network_builder.py` (deviations that
do not depend on the observation are `mu * 0.0 + sigma`).
"""

from __future__ import annotations

from onnx import ModelProto

from tests.helpers.exported_policies.written_graph import WrittenGraph, tensor

OBSERVATION, ACTIONS = 6, 3
SCOPE = "_model.a2c_network"


def normalized(g: WrittenGraph) -> str:
    prefix = "_model.running_mean_std"
    mean = g.weight(f"{prefix}.running_mean", g.rng.normal(size=OBSERVATION), "float64")
    var = g.weight(f"{prefix}.running_var", g.rng.uniform(0.2, 3, OBSERVATION), "float64")
    centred = g.node("Sub", "obs", g.cast(mean))
    shifted = g.node("Add", g.cast(var), g.constant(1e-5))
    scaled = g.node("Div", centred, g.node("Sqrt", shifted))
    return g.node("Clip", scaled, g.constant(-5.0), g.constant(5.0))


def continuous(fixed_sigma: bool = True) -> ModelProto:
    """`obs` -> `mu`, `log_std`, `value`."""
    g = WrittenGraph(13)
    x = g.node("Flatten", normalized(g), axis=1)
    x = g.activation(g.linear(x, f"{SCOPE}.actor_mlp.0", OBSERVATION, 16), "Elu")
    x = g.activation(g.linear(x, f"{SCOPE}.actor_mlp.2", 16, 8), "Elu")
    g.linear(x, f"{SCOPE}.value", 8, 1, to="value")
    g.linear(x, f"{SCOPE}.mu", 8, ACTIONS, to="mu")
    if fixed_sigma:
        zeros = g.node("Mul", "mu", g.constant(0.0))
        g.node("Add", zeros, g.drawn(f"{SCOPE}.sigma", ACTIONS), to="log_std")
    else:
        g.linear(x, f"{SCOPE}.sigma", 8, ACTIONS, to="log_std")
    outputs = [tensor("mu", 1, ACTIONS), tensor("log_std", 1, ACTIONS), tensor("value", 1, 1)]
    return g.model([tensor("obs", 1, OBSERVATION)], outputs)


def discrete() -> ModelProto:
    """`obs` -> `logits`, `value`."""
    g = WrittenGraph(13)
    x = g.node("Flatten", normalized(g), axis=1)
    x = g.activation(g.linear(x, f"{SCOPE}.actor_mlp.0", OBSERVATION, 16), "Relu")
    g.linear(x, f"{SCOPE}.value", 16, 1, to="value")
    g.linear(x, f"{SCOPE}.logits", 16, ACTIONS, to="logits")
    return g.model([tensor("obs", 1, OBSERVATION)], [tensor("logits", 1, 3), tensor("value", 1, 1)])
