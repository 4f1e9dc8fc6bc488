"""A small policy like the ACT of LeRobot: a state and an image, attention, a chunk of actions.

Sources: huggingface/lerobot `examples/onnx/export_policy_to_onnx.py` (opset 17, names of inputs,
`action_chunk`, open batches) and `src/lerobot/policies/act/modeling_act.py` (tokens of state and
image, learned queries, post-norm). One encoder and one decoder layer of one head, not a ResNet.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from tests.helpers.exported_policies.written_graph import WrittenGraph, tensor

STATE, ACTIONS, CHUNK, WIDTH, SIDE = 4, 3, 5, 8, 12
TOKENS = 9  # of the image


def _attention(g: WrittenGraph, scope: str, queries: str, keys: str) -> str:
    made = [
        g.node("MatMul", x, g.drawn(f"{scope}.{part}", WIDTH, WIDTH, scale=WIDTH**-0.5))
        for part, x in (("q", queries), ("k", keys), ("v", keys))
    ]
    turned = g.node("Transpose", made[1], perm=[0, 2, 1])
    scores = g.node("Mul", g.node("MatMul", made[0], turned), g.constant(WIDTH**-0.5))
    mixed = g.node("MatMul", g.node("Softmax", scores, axis=-1), made[2])
    return _normed(g, scope, g.node("Add", queries, mixed))


def _normed(g: WrittenGraph, scope: str, x: str) -> str:
    gamma = g.weight(f"{scope}.norm.weight", g.rng.normal(1, 0.1, WIDTH))
    beta = g.drawn(f"{scope}.norm.bias", WIDTH, scale=0.1)
    return g.node("LayerNormalization", x, gamma, beta, axis=-1, epsilon=1e-5)


def action_chunk() -> ModelProto:
    g = WrittenGraph(17)
    kernel = g.drawn("backbone.weight", WIDTH, 3, 4, 4, scale=0.15)
    bias = g.drawn("backbone.bias", WIDTH, scale=0.1)
    image = "observation.images.top"
    image = g.node("Conv", image, kernel, bias, kernel_shape=[4, 4], strides=[4, 4])
    rows = g.node("Reshape", g.node("Relu", image), g.constant([-1, WIDTH, TOKENS], "int64"))
    tokens = g.node("Transpose", rows, perm=[0, 2, 1])
    state = g.linear("observation.state", "encoder_robot_state_input_proj", STATE, WIDTH)
    state = g.node("Unsqueeze", state, g.constant([1], "int64"))
    tokens = g.node("Concat", state, tokens, axis=1)
    places = g.drawn("encoder_1d_feature_pos_embed.weight", 1, TOKENS + 1, WIDTH)
    encoded = _attention(g, "encoder", g.node("Add", tokens, places), tokens)
    # Queries without an own value: the mean of the tokens, moved by learned places.
    mean = g.node("ReduceMean", encoded, axes=[1], keepdims=1)
    queries = g.node("Add", mean, g.drawn("decoder_pos_embed.weight", 1, CHUNK, WIDTH))
    decoded = _attention(g, "decoder", queries, encoded)
    head = g.drawn("action_head.weight", WIDTH, ACTIONS, scale=WIDTH**-0.5)
    x = g.node("MatMul", decoded, head)
    g.node("Add", x, g.drawn("action_head.bias", ACTIONS, scale=0.1), to="action_chunk")
    inputs = [
        tensor("observation.state", "batch", STATE),
        tensor("observation.images.top", "batch", 3, SIDE, SIDE),
    ]
    return g.model(inputs, [tensor("action_chunk", "batch", CHUNK, ACTIONS)])


def samples(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    image = rng.uniform(0, 1, (n, 3, SIDE, SIDE)).astype(np.float32)
    return {
        "observation.state": rng.normal(size=(n, STATE)).astype(np.float32),
        "observation.images.top": image,
    }
