"""Policies on the last steps of an environment: convolutions along time, and attention.

Sources: chengxuxin/extreme-parkour `rsl_rl/rsl_rl/modules/actor_critic.py` (`StateHistoryEncoder`:
one linear layer on each step, `Conv1d` along time, Flatten), PyTorch `torch.nn.Conv1d`,
`torch.nn.TransformerEncoderLayer` and `torch.nn.functional.multi_head_attention_forward` (heads
beside the samples, samples along the second axis) with `torch.onnx.export`.
"""

from __future__ import annotations

from onnx import ModelProto

from tests.helpers.exported_policies.written_graph import WrittenGraph, tensor

STEPS, SEEN, WIDTH, HEADS, ACTIONS = 6, 4, 8, 2, 3
EACH = WIDTH // HEADS


def _shaped(g: WrittenGraph, x: str, *shape: int) -> str:
    return g.node("Reshape", x, g.constant(shape, "int64"))


def _conv(g: WrittenGraph, x: str, scope: str, rows: int, columns: int, size: int, **how) -> str:
    kernel = g.drawn(f"{scope}.weight", columns, rows, size, scale=(rows * size) ** -0.5)
    bias = g.drawn(f"{scope}.bias", columns, scale=0.1)
    plain = {"kernel_shape": [size], "strides": [1], "dilations": [1], "group": 1, "pads": [0, 0]}
    return g.node("Conv", x, kernel, bias, **{**plain, **how})


def convolutions() -> ModelProto:
    """Channels of the last steps [n, c, t]: `torch.nn.Conv1d`, also dilated and in groups."""
    g = WrittenGraph(17)
    x = g.node("Relu", _conv(g, "obs", "net.0", SEEN, 8, 3, pads=[1, 1]))
    x = g.node("Tanh", _conv(g, x, "net.2", 8, 8, 2, dilations=[2]))
    x = g.node("Relu", _conv(g, x, "net.4", 1, 8, 2, strides=[2], group=8))
    x = g.node("Flatten", x, axis=1)
    g.linear(x, "net.7", 8 * 2, ACTIONS, to="actions")
    return g.model([tensor("obs", "batch", SEEN, STEPS)], [tensor("actions", "batch", ACTIONS)])


def history_encoder() -> ModelProto:
    """The newest step, and an encoding of all steps: [n, steps * numbers]."""
    g = WrittenGraph(17)
    one, total = g.constant([1], "int64"), STEPS * SEEN
    at = [g.constant([k], "int64") for k in (total - SEEN, total)]
    newest = g.node("Slice", "obs", at[0], at[1], one, one)
    rows = g.linear(_shaped(g, "obs", -1, SEEN), "history.encoder.0", SEEN, 6)
    steps = _shaped(g, g.node("Elu", rows, alpha=1.0), -1, STEPS, 6)
    x = g.node("Transpose", steps, perm=[0, 2, 1])
    x = g.node("Elu", _conv(g, x, "history.conv.0", 6, 5, 3, strides=[2]), alpha=1.0)
    x = g.linear(g.node("Flatten", x, axis=1), "history.linear.0", 10, 4)
    x = g.node("Concat", newest, x, axis=-1)
    g.layers(x, "actor", (SEEN + 4, 16, ACTIONS), "Elu", to="actions")
    return g.model([tensor("obs", "batch", total)], [tensor("actions", "batch", ACTIONS)])


def _rows(g: WrittenGraph, x: str, scope: str, rows: int, columns: int) -> str:
    """`torch.nn.Linear` on values of three axes: MatMul and Add."""
    kernel = g.drawn(f"{scope}.weight", rows, columns, scale=rows**-0.5)
    return g.node("Add", g.node("MatMul", x, kernel), g.drawn(f"{scope}.bias", columns, scale=0.1))


def _normed(g: WrittenGraph, x: str, scope: str) -> str:
    gamma = g.weight(f"{scope}.weight", g.rng.normal(1, 0.1, WIDTH))
    beta = g.drawn(f"{scope}.bias", WIDTH, scale=0.1)
    return g.node("LayerNormalization", x, gamma, beta, axis=-1, epsilon=1e-5)


def _gelu(g: WrittenGraph, x: str) -> str:
    """`torch.nn.GELU` before opset 20."""
    share = g.node("Add", g.node("Erf", g.node("Div", x, g.constant(2**0.5))), g.constant(1.0))
    return g.node("Mul", g.node("Mul", x, share), g.constant(0.5))


def _mixed(g: WrittenGraph, query: str, key: str, value: str) -> str:
    scores = g.node("Mul", g.node("MatMul", query, key), g.constant(EACH**-0.5))
    return g.node("MatMul", g.node("Softmax", scores, axis=-1), value)


def attention() -> ModelProto:
    """Steps [n, t, numbers], two heads, GELU, the last step: samples along the first axis."""
    g = WrittenGraph(17)
    x = _rows(g, "obs", "embed", SEEN, WIDTH)
    x = g.node("Add", x, g.drawn("positions", 1, STEPS, WIDTH, scale=0.3))
    query, key, value = (
        _shaped(g, _rows(g, x, f"attention.{part}", WIDTH, WIDTH), -1, STEPS, HEADS, EACH)
        for part in "qkv"
    )
    mixed = _mixed(
        g,
        g.node("Transpose", query, perm=[0, 2, 1, 3]),
        g.node("Transpose", key, perm=[0, 2, 3, 1]),
        g.node("Transpose", value, perm=[0, 2, 1, 3]),
    )
    mixed = _shaped(g, g.node("Transpose", mixed, perm=[0, 2, 1, 3]), -1, STEPS, WIDTH)
    x = _normed(g, g.node("Add", x, _rows(g, mixed, "attention.out", WIDTH, WIDTH)), "norm1")
    hidden = _gelu(g, _rows(g, x, "linear1", WIDTH, 12))
    x = _normed(g, g.node("Add", x, _rows(g, hidden, "linear2", 12, WIDTH)), "norm2")
    last = g.node("Gather", x, g.constant(STEPS - 1, "int64"), axis=1)
    g.linear(last, "head", WIDTH, ACTIONS, to="actions")
    return g.model([tensor("obs", "batch", STEPS, SEEN)], [tensor("actions", "batch", ACTIONS)])


def attention_of_steps_first() -> ModelProto:
    """`torch.nn.MultiheadAttention`: samples along the second axis, and beside the heads."""
    g = WrittenGraph(17)
    x = _rows(g, "obs", "embed", SEEN, WIDTH)
    first = g.node("Transpose", x, perm=[1, 0, 2])
    both = _rows(g, first, "attention.in_proj", WIDTH, 3 * WIDTH)
    parts = [f"/Split_output_{i}" for i in range(3)]
    g.several("Split", [both, g.constant([WIDTH] * 3, "int64")], parts, axis=-1)
    query, key, value = (
        g.node("Transpose", _shaped(g, part, STEPS, -1, EACH), perm=[1, 0, 2]) for part in parts
    )
    mixed = _mixed(g, query, g.node("Transpose", key, perm=[0, 2, 1]), value)
    mixed = _shaped(g, g.node("Transpose", mixed, perm=[1, 0, 2]), -1, WIDTH)
    mixed = g.linear(mixed, "attention.out_proj", WIDTH, WIDTH)
    mixed = g.node("Transpose", _shaped(g, mixed, STEPS, -1, WIDTH), perm=[1, 0, 2])
    x = _normed(g, g.node("Add", x, mixed), "norm")
    pooled = g.node("ReduceMean", x, axes=[1], keepdims=0)
    g.linear(pooled, "head", WIDTH, ACTIONS, to="actions")
    return g.model([tensor("obs", "batch", STEPS, SEEN)], [tensor("actions", "batch", ACTIONS)])
