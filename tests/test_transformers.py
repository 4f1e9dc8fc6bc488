"""Vision transformers of Keras and PyTorch become integers from the first layer to the logits."""

import keras
import numpy as np
import pytest
import tf_keras
from onnx import helper

from qgraph.compiler import quantize
from qgraph.quantized import Quantized
from qgraph.stored import load_network
from qgraph.verification.verify import verify
from tests.helpers.forms import missing_tool
from tests.helpers.onnx_graphs import imported, model_of

TOKENS, WIDTH, HEADS, CLASSES = 16, 12, 2, 5
RNG = np.random.default_rng(5)
IMAGES = RNG.normal(size=(48, 8, 8, 1)).astype(np.float32)
FLOAT_TAIL = {"softmax", "log_softmax"}


def keras_vit(k):
    layers = k.layers
    image = layers.Input((8, 8, 1))
    x = layers.Reshape((TOKENS, WIDTH))(layers.Conv2D(WIDTH, 2, 2)(image))
    y = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(y, y)])
    y = layers.Dense(2 * WIDTH, activation="gelu")(layers.LayerNormalization()(x))
    y = layers.EinsumDense("abc,cd->abd", (None, WIDTH), bias_axes="d")(y)
    x = layers.LayerNormalization()(layers.Add()([x, y]))
    x = layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling1D()(x))
    model = k.Model(image, x)
    for weights in model.weights:  # biases and norms that do nothing would be removed
        if len(weights.shape) == 1 or "bias" in weights.name:
            weights.assign(RNG.normal(1 if "gamma" in weights.name else 0, 0.2, weights.shape))
    return model


def drawn(*shape):
    return RNG.normal(0, shape[0] ** -0.5, shape).astype(np.float32)


def torch_encoder():
    """Self-attention as PyTorch exports it: one layer for three projections, then slices."""
    node, depth = helper.make_node, WIDTH // HEADS
    shapes = {
        "heads": [-1, TOKENS, HEADS, depth],
        "joined": [-1, TOKENS, WIDTH],
        "one": [1], "two": [2], "last": [-1],
    }  # fmt: skip
    constants = {
        **{key: np.array(value, np.int64) for key, value in shapes.items()},
        **{f"at{i}": np.array([i * WIDTH], np.int64) for i in range(4)},
        "w": drawn(WIDTH, 3 * WIDTH), "b": drawn(3 * WIDTH), "out": drawn(WIDTH, WIDTH),
        "head": drawn(WIDTH, CLASSES), "gamma": 1 + drawn(WIDTH), "beta": drawn(WIDTH),
        "root": np.float32(depth**-0.25),
    }  # fmt: skip
    parts = []
    for i, (name, perm) in enumerate(
        (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3)))
    ):
        parts += [
            node("Slice", ["packed", f"at{i}", f"at{i + 1}", "two"], [f"{name}0"]),
            node("Reshape", [f"{name}0", "heads"], [f"{name}1"]),
            node("Transpose", [f"{name}1"], [name], perm=perm),
        ]
    nodes = [
        node("LayerNormalization", ["x", "gamma", "beta"], ["normal"]),
        node("MatMul", ["normal", "w"], ["product"]),
        node("Add", ["b", "product"], ["packed"]),
        *parts,
        node("Mul", ["q", "root"], ["qs"]),
        node("Mul", ["k", "root"], ["ks"]),
        node("MatMul", ["qs", "ks"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=(0, 2, 1, 3)),
        node("Reshape", ["back", "joined"], ["flat"]),
        node("MatMul", ["flat", "out"], ["attended"]),
        node("Add", ["x", "attended"], ["sum"]),
        node("ReduceMean", ["sum"], ["mean"], axes=[1], keepdims=0),
        node("MatMul", ["mean", "head"], ["y"]),
    ]
    return model_of(nodes, {"x": ("n", TOKENS, WIDTH)}, constants=constants)


def check(made: Quantized, folder, softmaxes: int) -> list[str]:
    """Assert that the network is integers up to its float tail, and that every form is equal.

    Returns the ops of its integer program.
    """
    made.save(folder)
    results = verify(folder)
    assert results.equal
    forms = {"engine", "c", "onnx-integer", "tensorflow"}
    assert {f for f in forms if missing_tool(f) is None} <= results.compared.tallies.keys()
    float_ops = [n.op for n in made.graph.topological() if n.op in FLOAT_TAIL]
    assert len(float_ops) <= 1
    steps = [step.op for step in load_network(folder).program.steps]
    assert steps.count("softmax") == softmaxes
    return steps


@pytest.mark.parametrize("k", [tf_keras, keras], ids=["tf_keras", "keras"])
def test_keras_vit(k, tmp_path):
    made = quantize(keras_vit(k), IMAGES, effort="plain")
    steps = check(made, tmp_path / "out", 1)
    # Projections to heads and back, two dense layers, the patches and the classifier.
    assert steps.count("matmul") == 7 and steps.count("batch_matmul") == 2
    scales = [n for n in made.graph.topological() if n.op == "mul"]
    assert len(scales) == 3  # of norms; that of the scores is in weights
    assert made.facts.agreement.sqnr > 25


def test_attention_of_pytorch(tmp_path):
    samples = RNG.normal(size=(48, TOKENS, WIDTH)).astype(np.float32)
    made = quantize(imported(torch_encoder()), samples, effort="plain")
    steps = check(made, tmp_path / "out", 1)
    assert steps.count("matmul") == 3 and steps.count("batch_matmul") == 2
    scales = [n for n in made.graph.topological() if n.op == "mul"]
    assert len(scales) == 1  # of the norm; those of queries and keys are in weights


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_op(causal, tmp_path):
    """Four heads of queries share two heads of keys and values."""
    node = helper.make_node
    weights = {"wq": (8, 16), "wk": (8, 8), "wv": (8, 8), "wo": (16, CLASSES)}
    nodes = [
        *(node("MatMul", ["x", f"w{i}"], [i]) for i in "qkv"),
        node(
            "Attention", ["q", "k", "v"], ["mixed"], q_num_heads=4, kv_num_heads=2, is_causal=causal
        ),
        node("MatMul", ["mixed", "wo"], ["y"]),
    ]
    constants = {name: drawn(*shape) for name, shape in weights.items()}
    model = model_of(nodes, {"x": ("n", 3, 8)}, constants=constants, opset=23, ir_version=11)
    made = quantize(imported(model), RNG.normal(size=(48, 3, 8)).astype(np.float32), effort="plain")
    steps = check(made, tmp_path / "out", 1)
    assert steps.count("matmul") == 4 and steps.count("batch_matmul") == 2
    assert "mul" not in {n.op for n in made.graph.topological()}  # the scale is in weights


@pytest.mark.parametrize("k", [tf_keras, keras], ids=["tf_keras", "keras"])
def test_causal_attention_of_keras(k, tmp_path):
    x = k.layers.Input((6, 8))
    y = k.layers.Dense(8, activation="relu")(x)
    y = k.layers.MultiHeadAttention(2, 4)(y, y, use_causal_mask=True)
    model = k.Model(x, k.layers.Dense(CLASSES)(y))
    samples = RNG.normal(size=(48, 6, 8)).astype(np.float32)
    made = quantize(model, samples, effort="plain")
    check(made, tmp_path / "out", 1)
    assert made.facts.agreement.sqnr > 20
    changed = samples.copy()
    changed[:, 3:] += 1  # later tokens do not change earlier results
    before, after = (
        made.reference().outputs({made.graph.inputs[0]: s}) for s in (samples, changed)
    )
    for name, found in before.items():
        assert (found[:, :3] == after[name][:, :3]).all()
        assert (found[:, 3:] != after[name][:, 3:]).any()
