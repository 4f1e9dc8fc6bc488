"""Policies' graphs as actor programs: the same function, in few steps."""

import os
from pathlib import Path

import numpy as np
import pytest

from qgraph.errors import UnsupportedError
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.rl.policy import read_policy
from qgraph.rl.policy.floats import run

FOLDER = Path(os.environ.get("QGRAPH_POLICIES") or Path(__file__).parents[4] / "shared/policies")
POLICIES = sorted(FOLDER.glob("*.pb"))


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 0.5, shape).astype(np.float32)


class Network:
    """A graph that is written op by op."""

    def __init__(self, *shape, dtype="float32"):
        self.graph = Graph("policy")
        self.x = self.graph.input("seen", dtype, (None, *shape))

    def const(self, value):
        return self.graph.const(value)

    def dense(self, x, rows, columns, bias=True):
        made = self.graph.add("matmul", x, self.const(numbers(rows, columns)))
        return self.add("bias_add", made, self.const(numbers(columns, seed=1))) if bias else made

    def add(self, op, *inputs, **attrs):
        return self.graph.add(op, *inputs, attrs=attrs)

    def read(self, *outputs):
        """The program, after it has been compared with the graph; images stay as they are."""
        self.graph.outputs = {f"out{i}": value for i, value in enumerate(outputs)}
        made = read_policy(self.graph)
        shape = self.graph.types["seen"].shape[1:]
        seen = (10 * numbers(7, *shape, seed=2)).astype(self.graph.types["seen"].dtype)
        expected = evaluate(self.graph, {"seen": seen})
        found = run(made.program, made.weights, seen)
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5)
        return made


def steps(made):
    return [
        f"{s.op} {s.activation}" if s.activation != "linear" else s.op for s in made.program.steps
    ]


def test_layers_take_their_bias_and_activation():
    net = Network(4)
    hidden = net.add("tanh", net.dense(net.x, 4, 8))
    made = net.read(net.dense(hidden, 8, 3))
    assert steps(made) == ["dense tanh", "dense"]
    assert made.program.outputs == ("out0",)
    assert made.program.shape == (4,)


def test_a_value_that_others_take_stays_before_its_activation():
    net = Network(4)
    made = net.dense(net.x, 4, 8)
    found = net.read(net.add("relu", made), net.add("tanh", made))
    assert steps(found) == ["dense", "activate relu", "activate tanh"]


def test_observation_normalisation_is_one_affine_and_one_clip():
    net = Network(4)
    x = net.add("sub", net.x, net.const(numbers(4)))
    x = net.add("div", x, net.const(np.abs(numbers(4)) + 1))
    x = net.add(
        "maximum", net.const(np.float32(-2)), net.add("minimum", x, net.const(np.float32(2)))
    )
    assert steps(net.read(net.dense(x, 4, 3))) == ["affine", "clip", "dense"]


def test_dueling_heads_lose_their_mean():
    net = Network(4)
    value, advantage = net.dense(net.x, 4, 1), net.dense(net.x, 4, 3)
    mean = net.add("mean", advantage, axes=(1,), keepdims=True)
    made = net.read(net.add("add", value, net.add("sub", advantage, mean)))
    assert steps(made) == ["dense", "dense", "add"]


def test_a_mean_that_no_layer_can_take_is_a_step():
    net = Network(4)
    advantage = net.add("tanh", net.dense(net.x, 4, 3))
    mean = net.add("mean", advantage, axes=(1,), keepdims=True)
    assert steps(net.read(net.add("sub", advantage, mean))) == ["dense tanh", "center"]


def test_differences_of_values():
    net = Network(4)
    wide, narrow = net.dense(net.x, 4, 3), net.dense(net.x, 4, 1)
    made = net.read(
        net.add("sub", wide, narrow),
        net.add("sub", narrow, wide),
        net.add("sub", net.const(np.float32(1)), wide),
        net.add("mul", narrow, wide),
    )
    kinds = steps(made)
    assert (kinds.count("affine"), kinds.count("add"), kinds.count("multiply")) == (3, 2, 1)


def test_a_network_of_images():
    net = Network(20, 20, 3, dtype="uint8")
    x = net.add("mul", net.add("cast", net.x, dtype="float32"), net.const(np.float32(1 / 255)))
    x = net.add(
        "conv2d",
        x,
        net.const(numbers(8, 8, 3, 5)),
        strides=(4, 4),
        dilations=(1, 1),
        padding="same",
    )
    x = net.add("relu", net.add("bias_add", x, net.const(numbers(5))))
    x = net.add("max_pool", x, ksize=(2, 2), strides=(1, 1), padding="valid")
    x = net.add("reshape", x, shape=(-1, 80))
    made = net.read(net.dense(x, 80, 4))
    assert steps(made) == ["affine", "conv relu", "max_pool", "flatten", "dense"]
    assert made.program.steps[1].attrs.pads == ((2, 2), (2, 2))


def test_every_activation_and_norm():
    net = Network(6)
    x = net.add("layer_norm", net.x, net.const(numbers(6)), net.const(numbers(6)), epsilon=1e-5)
    for kind in ("elu", "sigmoid", "softplus", "swish", "tanh"):
        x = net.add(kind, net.dense(x, 6, 6))
    x = net.add("leaky_relu", x, alpha=0.3)
    x = net.add("relu6", net.add("concat", x, net.add("exp", x), axis=-1))
    made = net.read(net.add("softmax", x))
    assert steps(made)[-4:] == ["activate exp", "concat", "clip", "softmax"]
    assert [s.alpha for s in made.program.steps if s.activation == "leaky_relu"] == [0.3]


def test_images_that_were_trained_with_channels_first_are_taken_with_channels_last():
    net = Network(3, 12, 10)
    scaled = net.add("div", net.x, net.const(np.float32(255)))
    image = net.add("transpose", scaled, perm=(0, 2, 3, 1))
    x = net.add(
        "conv2d",
        image,
        net.const(numbers(3, 3, 3, 5)),
        strides=(2, 2),
        dilations=(1, 1),
        padding="valid",
    )
    x = net.add("transpose", net.add("relu", x), perm=(0, 3, 1, 2))
    x = net.dense(net.add("reshape", x, shape=(-1, 5 * 5 * 4)), 100, 3)
    net.graph.outputs = {"scores": x}
    made = read_policy(net.graph)
    assert made.images_first and made.program.shape == (12, 10, 3)
    assert steps(made) == ["affine", "conv relu", "flatten", "dense"]
    seen = 255 * numbers(2, 3, 12, 10)
    found = run(made.program, made.weights, seen.transpose(0, 2, 3, 1))["scores"]
    np.testing.assert_allclose(found, evaluate(net.graph, {"seen": seen})["scores"], 1e-5, 1e-5)


def test_an_argmax_at_the_end_is_the_heads():
    net = Network(4)
    scores = net.dense(net.x, 4, 3)
    net.graph.outputs = {"action": net.add("argmax", scores, axis=-1, dtype="int64")}
    made = read_policy(net.graph)
    assert steps(made) == ["dense"] and made.program.outputs == ("action",)


@pytest.mark.parametrize(
    ("build", "found"),
    [
        (lambda n: n.add("sqrt", n.x), "sqrt"),
        (lambda n: n.add("mean", n.x, axes=(0,), keepdims=True), "along the axis of samples"),
        (lambda n: n.add("mean", n.x, axes=(1,), keepdims=False), "without an axis"),
        (lambda n: n.add("tanh", n.add("reshape", n.x, shape=(-1, 8))), "several samples"),
        (lambda n: n.add("transpose", n.x, perm=(1, 0)), "samples"),
        (lambda n: n.add("maximum", n.x, n.dense(n.x, 4, 4)), "of two values"),
    ],
)
def test_what_no_actor_has_is_refused_by_name(build, found):
    net = Network(4)
    net.graph.outputs = {"out": build(net)}
    with pytest.raises(UnsupportedError, match=found) as refusal:
        read_policy(net.graph)
    assert refusal.value.node


def test_an_output_that_nothing_changes_is_refused():
    net = Network(4)
    net.graph.outputs = {"mean": net.dense(net.x, 4, 2), "log_std": net.const(numbers(1, 2))}
    with pytest.raises(UnsupportedError, match="does not depend on the observation"):
        read_policy(net.graph)


def test_open_sizes_and_two_inputs_are_refused():
    net = Network(None)
    net.graph.outputs = {"out": net.add("tanh", net.x)}
    with pytest.raises(UnsupportedError, match="size is unknown"):
        read_policy(net.graph)
    net = Network(4)
    net.graph.outputs = {
        "out": net.add("add", net.x, net.graph.input("goal", "float32", (None, 4)))
    }
    with pytest.raises(UnsupportedError, match="`seen`, `goal`"):
        read_policy(net.graph)


def test_keras_policies_come_in(tmp_path):
    import tf_keras as keras

    from qgraph.frontends import load_keras

    layers = keras.layers
    x = keras.Input((12, 12, 2), name="frames")
    y = layers.Rescaling(1 / 255)(x)
    y = layers.Conv2D(4, 4, 2, activation="relu")(y)
    y = layers.LayerNormalization()(layers.Dense(8)(layers.Flatten()(y)))
    value, advantage = layers.Dense(1)(y), layers.Dense(3)(layers.Activation("tanh")(y))
    centred = advantage - keras.backend.mean(advantage, axis=1, keepdims=True)
    model = keras.Model(x, layers.Add()([value, centred]))
    model.set_weights([w + 0.1 for w in model.get_weights()])  # gamma and beta do something
    graph = load_keras(model)
    made = read_policy(graph)
    seen = np.random.default_rng(0).integers(0, 256, (5, 12, 12, 2)).astype(np.float32)
    (found,) = run(made.program, made.weights, seen).values()
    np.testing.assert_allclose(found, model(seen).numpy(), rtol=1e-4, atol=1e-5)
    assert steps(made)[:5] == ["affine", "conv relu", "flatten", "dense", "layer_norm"]
    assert made.program.steps[4].attrs.epsilon == pytest.approx(1e-3)


@pytest.mark.skipif(not POLICIES, reason="set QGRAPH_POLICIES to a folder of policies")
@pytest.mark.parametrize("file", POLICIES, ids=lambda p: p.stem)
def test_trained_policies_compute_what_their_graphs_do(file):
    from qgraph.frontends import load

    graph = load(file)
    made = read_policy(graph)
    seen = 3 * numbers(256, *made.program.shape)
    found = run(made.program, made.weights, seen)["action"]
    expected = evaluate(graph, {made.program.observation: seen})["action"]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
