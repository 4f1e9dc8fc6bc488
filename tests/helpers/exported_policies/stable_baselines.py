"""Policies of stable-baselines3, by its guide and by Godot RL Agents.

Sources: DLR-RM/stable-baselines3 `docs/guide/export.rst` (`action` and `value`, opset 9),
edbeeching/godot_rl_agents `godot_rl/wrappers/onnx/stable_baselines_export.py` (`state_ins` is
returned as `state_outs`, opset 17).
"""

from __future__ import annotations

from onnx import ModelProto

from tests.helpers.exported_policies.written_graph import WrittenGraph, tensor

OBSERVATION, ACTIONS = 6, 3


def actor_and_critic() -> ModelProto:
    """Outputs without names: the action's mean, and the value."""
    g = WrittenGraph(9)
    x = g.node("Flatten", "input.1", axis=1)
    hidden = [
        g.layers(x, f"extractor.{net}", (OBSERVATION, 16), "Tanh") for net in ("policy", "value")
    ]
    mean, value = (g.node("Tanh", h) for h in hidden)
    g.linear(mean, "action_net", 16, ACTIONS, to="27")
    g.linear(value, "value_net", 16, 1, to="28")
    return g.model(
        [tensor("input.1", 1, OBSERVATION)], [tensor("27", 1, ACTIONS), tensor("28", 1, 1)]
    )


def godot() -> ModelProto:
    """`obs`, `state_ins` -> `output`, `state_outs`."""
    g = WrittenGraph(17)
    x = g.node("Flatten", "obs", axis=1)
    g.layers(x, "mlp_extractor.policy_net", (OBSERVATION, 16, ACTIONS), "Tanh", to="output")
    g.node("Identity", "state_ins", to="state_outs")
    return g.model(
        [tensor("obs", "batch_size", OBSERVATION), tensor("state_ins", "batch_size")],
        [tensor("output", "batch_size", ACTIONS), tensor("state_outs", "batch_size")],
    )
