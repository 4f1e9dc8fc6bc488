"""Policies of Unity ML-Agents.

Sources: Unity-Technologies/ml-agents `ml-agents/mlagents/trainers/torch_entities/
model_serialization.py` (names, order, open batches), `networks.py` (outputs that are parameters),
`action_model.py` (clip to 3, division by 3), `distributions.py` (drawn actions, masks),
`encoders.py` (normalizer) and `layers.py` (swish, memory as both states of an LSTM).
"""

from __future__ import annotations

from onnx import ModelProto

from tests.helpers.exported_policies.written_graph import WrittenGraph, tensor

OBSERVATION, ACTIONS, MEMORY = 6, 3, 8
OPSET = 9
CHOICES = (3, 2)


def _clip(g: WrittenGraph, x: str, bound: float) -> str:
    return g.node("Clip", x, min=-bound, max=bound)  # attributes before opset 11


def _body(g: WrittenGraph) -> str:
    mean = g.drawn("network_body.running_mean", OBSERVATION)
    variance = g.weight("network_body.running_variance", g.rng.uniform(100, 900, OBSERVATION))
    steps = g.cast(g.weight("network_body.normalization_steps", 250, "int64"))
    deviation = g.node("Sqrt", g.node("Div", variance, steps))
    x = _clip(g, g.node("Div", g.node("Sub", "obs_0", mean), deviation), 5.0)
    x = g.node("Concat", x, axis=1)
    for index, rows in enumerate((OBSERVATION, 16)):
        x = g.activation(g.linear(x, f"network_body.{2 * index}", rows, 16), "Swish")
    return x


def _facts(g: WrittenGraph, memory: int, discrete: bool) -> list[str]:
    shape, size = ("discrete", list(CHOICES)) if discrete else ("continuous", ACTIONS)
    g.node("Identity", g.weight("actor.version_number", [3.0]), to="version_number")
    g.node("Identity", g.weight("actor.memory_size_vector", [float(memory)]), to="memory_size")
    name = f"{shape}_action_output_shape"
    g.node("Identity", g.weight("actor.act_size_vector", [size]), to=name)
    return ["version_number", "memory_size", name]


def _inputs(memory: int, masks: int) -> list[object]:
    return [
        tensor("obs_0", "batch", OBSERVATION),
        tensor("action_masks", "batch", masks),
        tensor("recurrent_in", "batch", 1, memory),
    ]


def _recurrent(g: WrittenGraph, x: str) -> str:
    """An LSTM whose hidden and cell state are the halves of `recurrent_in`."""
    half = MEMORY // 2
    x = g.node("Reshape", x, g.constant([-1, 1, 16], "int64"))
    memory = g.node("Transpose", "recurrent_in", perm=[1, 0, 2])
    h = g.node("Slice", memory, *(g.constant([n], "int64") for n in (0, half, 2)))
    c = g.node("Slice", memory, *(g.constant([n], "int64") for n in (half, MEMORY, 2)))
    kernels = [
        g.drawn("lstm.w", 1, 4 * half, 16, scale=0.3),
        g.drawn("lstm.r", 1, 4 * half, half),
        g.drawn("lstm.b", 1, 8 * half, scale=0.1),
    ]
    x = g.node("Transpose", x, perm=[1, 0, 2])
    ends = ["/lstm/y", "/lstm/h", "/lstm/c"]
    g.several("LSTM", [x, *kernels, "", h, c], ends, hidden_size=half)
    y = g.node("Transpose", g.node("Squeeze", ends[0], axes=[1]), perm=[1, 0, 2])
    both = g.node("Concat", *ends[1:], axis=2)
    g.node("Transpose", both, to="recurrent_out", perm=[1, 0, 2])
    return g.node("Reshape", y, g.constant([-1, half], "int64"))


def continuous(recurrent: bool = False) -> ModelProto:
    """Drawn actions, actions without noise, and constants about them."""
    memory = MEMORY if recurrent else 0
    g = WrittenGraph(10 if recurrent else OPSET)
    x = _body(g)
    x = _recurrent(g, x) if recurrent else x
    mu = g.linear(x, "actor.mu", MEMORY // 2 if recurrent else 16, ACTIONS)
    zeros = g.node("Mul", mu, g.constant(0.0))
    std = g.node("Exp", g.node("Add", zeros, g.drawn("actor.log_sigma", 1, ACTIONS)))
    noise = g.node("RandomNormalLike", mu)
    drawn = g.node("Add", mu, g.node("Mul", noise, std))
    version, size, shape = _facts(g, memory, discrete=False)
    for value, name in ((drawn, "continuous_actions"), (mu, "deterministic_continuous_actions")):
        g.node("Div", _clip(g, value, 3.0), g.constant(3.0), to=name)
    outputs = [
        tensor(version, 1),
        tensor(size, 1),
        tensor("continuous_actions", "batch", ACTIONS),
        tensor(shape, 1),
        tensor("deterministic_continuous_actions", "batch", ACTIONS),
    ]
    more = [tensor("recurrent_out", "batch", 1, MEMORY)] if recurrent else []
    return g.model(_inputs(memory, 0), [*outputs, *more])


def discrete() -> ModelProto:
    """Two branches of discrete actions, whose masks are an input."""
    g = WrittenGraph(11)
    x = g.node("Sub", "obs_0", g.drawn("network_body.running_mean", OBSERVATION))
    x = g.activation(g.linear(x, "network_body.0", OBSERVATION, 16), "Swish")
    drawn, best, start = [], [], 0
    for branch, size in enumerate(CHOICES):
        ends = [g.constant([n], "int64") for n in (start, start + size, 1)]
        mask, start = g.node("Slice", "action_masks", *ends), start + size
        blocked = g.node("Add", g.node("Mul", mask, g.constant(-1.0)), g.constant(1.0))
        logits = g.node("Mul", g.linear(x, f"branches.{branch}", 16, size), mask)
        logits = g.node("Sub", logits, g.node("Mul", blocked, g.constant(1e8)))
        chances = g.node("Softmax", logits, axis=1)
        drawn.append(g.node("Multinomial", g.node("Log", chances), dtype=7, sample_size=1))
        best.append(g.node("ArgMax", chances, axis=1, keepdims=1))
    names = _facts(g, 0, discrete=True)
    g.node("Concat", *drawn, to="discrete_actions", axis=1)
    g.node("Concat", *best, to="deterministic_discrete_actions", axis=1)
    actions = [
        tensor(f"{kind}discrete_actions", "batch", len(CHOICES), kind=7)
        for kind in ("", "deterministic_")
    ]
    facts = [tensor(names[0], 1), tensor(names[1], 1), tensor(names[2], 1, len(CHOICES))]
    return g.model(_inputs(0, sum(CHOICES)), [*facts, *actions])
