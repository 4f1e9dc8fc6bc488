"""Policies of CleanRL, which has no exporter: its modules with `torch.onnx.export`.

Sources: vwxyzjn/cleanrl `cleanrl/dqn_atari.py` (x / 255, convolutions, Flatten), `cleanrl/c51.py`
(probabilities of atoms, their expected value), `cleanrl/rainbow_atari.py` (dueling heads of atoms),
`cleanrl/ppo_continuous_action.py` and `cleanrl/sac_continuous_action.py` (bounds of the deviation,
tanh, scale and bias of actions).
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto

from tests.helpers.exported_policies.written_graph import WrittenGraph, tensor

OBSERVATION, ACTIONS, ATOMS = 6, 3, 11
FRAMES, SIDE = 4, 20


def q_network(greedy: bool = False, dtype: int = TensorProto.UINT8) -> ModelProto:
    """Images [batch, 4, h, w] -> values of actions, or the greedy action."""
    g = WrittenGraph(17)
    x = "x" if dtype == TensorProto.FLOAT else g.cast("x")
    x = g.node("Div", x, g.constant(255.0))
    for index, (rows, columns, size, stride) in enumerate(((FRAMES, 8, 8, 4), (8, 6, 3, 1))):
        scope = f"network.{2 * index}"
        kernel = g.drawn(
            f"{scope}.weight", columns, rows, size, size, scale=(rows**0.5 * size) ** -1
        )
        bias = g.drawn(f"{scope}.bias", columns, scale=0.1)
        sizes = {"kernel_shape": [size, size], "strides": [stride, stride]}
        plain = {"dilations": [1, 1], "group": 1, "pads": [0, 0, 0, 0]}
        x = g.node("Relu", g.node("Conv", x, kernel, bias, **sizes, **plain))
    x = g.node("Flatten", x, axis=1)
    x = g.node("Relu", g.linear(x, "network.5", 6 * 2 * 2, 16))
    g.linear(x, "network.7", 16, ACTIONS, to="q_values")
    outputs = [tensor("q_values", "batch", ACTIONS)]
    if greedy:
        g.node("ArgMax", "q_values", to="actions", axis=1, keepdims=0, select_last_index=0)
        outputs = [tensor("actions", "batch", kind=TensorProto.INT64)]
    return g.model([tensor("x", "batch", FRAMES, SIDE, SIDE, kind=dtype)], outputs)


def categorical_network(
    dueling: bool = False, greedy: bool = False, traced: bool = False
) -> ModelProto:
    """Expected values of actions, whose returns are distributed over atoms from -4 to 12.

    traced: `view(len(x), ...)` has the one sample that the module was traced with.
    """
    g = WrittenGraph(17)
    x = g.node("Relu", g.linear("x", "network.0", OBSERVATION, 24))
    logits = _atoms(g, x, "network.2", ACTIONS, 1 if traced else -1)
    if dueling:
        mean = g.node("ReduceMean", logits, axes=[1], keepdims=1)
        value = _atoms(g, x, "value.2", 1)
        logits = g.node("Sub", g.node("Add", value, logits), mean)
    shares = g.node("Softmax", logits, axis=2)
    returns = g.node("Mul", shares, g.weight("atoms", np.linspace(-4, 12, ATOMS)))
    g.node("ReduceSum", returns, g.constant([2], "int64"), to="q_values", keepdims=0)
    outputs = [tensor("q_values", "batch", ACTIONS)]
    if greedy:
        g.node("ArgMax", "q_values", to="actions", axis=1, keepdims=0, select_last_index=0)
        outputs = [tensor("actions", "batch", kind=TensorProto.INT64)]
    return g.model([tensor("x", "batch", OBSERVATION)], outputs)


def _atoms(g: WrittenGraph, x: str, scope: str, actions: int, samples: int = -1) -> str:
    made = g.linear(x, scope, 24, actions * ATOMS)
    return g.node("Reshape", made, g.constant([samples, actions, ATOMS], "int64"))


def gaussian_actor() -> ModelProto:
    """`actor_mean` of PPO: a tanh network alone."""
    g = WrittenGraph(17)
    g.layers("x", "actor_mean", (OBSERVATION, 16, 16, ACTIONS), "Tanh", to="action_mean")
    return g.model([tensor("x", "batch", OBSERVATION)], [tensor("action_mean", "batch", ACTIONS)])


def soft_actor() -> ModelProto:
    """`get_action` of SAC without the draw: mean, bounded log deviation, scaled mean action."""
    g = WrittenGraph(17)
    x = g.node("Relu", g.linear("x", "fc1", OBSERVATION, 16))
    x = g.node("Relu", g.linear(x, "fc2", 16, 16))
    mean = g.linear(x, "fc_mean", 16, ACTIONS)
    log_std = g.node("Tanh", g.linear(x, "fc_logstd", 16, ACTIONS))
    raised = g.node("Add", log_std, g.constant(1.0))
    g.node("Add", g.node("Mul", raised, g.constant(3.5)), g.constant(-5.0), to="log_std")
    scale = g.weight("action_scale", np.full(ACTIONS, 2.0))
    bias = g.weight("action_bias", np.full(ACTIONS, 0.5))
    scaled = g.node("Mul", g.node("Tanh", mean), scale)
    g.node("Add", scaled, bias, to="mean_action")
    outputs = [tensor("mean_action", "batch", ACTIONS), tensor("log_std", "batch", ACTIONS)]
    return g.model([tensor("x", "batch", OBSERVATION)], outputs)
