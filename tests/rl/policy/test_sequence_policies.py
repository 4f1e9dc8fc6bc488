"""Policies on sequences, and with distributions of returns: the same actions in every form."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from qgraph.errors import UnsupportedError
from qgraph.frontends import load_keras
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy, floats, pack, read_policy
from tests.helpers.c_programs import needs_compiler
from tests.helpers.exported_policies import cleanrl, sequences
from tests.helpers.exported_policies.written_graph import WrittenGraph, tensor
from tests.helpers.policy_forms import assert_dynamic_form, assert_static_form

FORMS = {"dynamic": assert_dynamic_form, "static": assert_static_form}
EXPORTED = {
    "c51": cleanrl.categorical_network,
    "c51, dueling": lambda: cleanrl.categorical_network(dueling=True),
    "c51, traced": lambda: cleanrl.categorical_network(traced=True),
    "conv1d": sequences.convolutions,
    "history encoder": sequences.history_encoder,
    "attention": sequences.attention,
    "attention, samples second": sequences.attention_of_steps_first,
}
HEADS = {"argmax": Head("argmax"), "clip": Head("clip", (-0.5,) * 3, (0.5,) * 3)}


def observed(shape, n, seed):
    return np.random.default_rng(seed).normal(0, 1, (n, *shape)).astype(np.float32)


@needs_compiler
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", EXPORTED)
def test_exported_policies(name, form, saved, tmp_path):
    path = saved(EXPORTED[name]())
    network = read_policy(path)
    seen, x = (observed(network.shape, n, n) for n in (200, 64))
    session = onnxruntime.InferenceSession(str(path))
    (given,) = session.get_inputs()
    one_by_one = [session.run(None, {given.name: one[None]})[0] for one in x]
    head = HEADS["argmax" if "c51" in name else "clip"]
    FORMS[form](network, head, seen, x, np.concatenate(one_by_one), tmp_path)


def test_a_greedy_action_is_that_of_the_largest_expected_return(saved):
    path = saved(cleanrl.categorical_network(greedy=True))
    network, x = read_policy(path), observed((6,), 64, 0)
    (wanted,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    found = floats.run(network.program, network.weights, x)["actions"].argmax(-1)
    np.testing.assert_array_equal(found, wanted)
    assert len(set(wanted)) > 1


def test_a_head_on_probabilities_of_atoms_is_refused(saved):
    model = cleanrl.categorical_network()
    shares = next(node.output[0] for node in model.graph.node if node.op_type == "Softmax")
    network = read_policy(saved(model), outputs=[shares])
    with pytest.raises(UnsupportedError, match=r"shape \[3, 11\](.|\n)*one number for each action"):
        pack(network, HEADS["argmax"])
    x = observed((6,), 4, 0)
    assert Policy(pack(network)).outputs(x).shape == (4, 3, 11)


def test_samples_along_another_axis_stay_apart(saved):
    """A batch has the actions of its samples alone: no axis was taken for another one."""
    network = read_policy(saved(sequences.attention_of_steps_first()))
    x = observed(network.shape, 5, 0)
    together = floats.run(network.program, network.weights, x)["actions"]
    alone = [floats.run(network.program, network.weights, one[None])["actions"] for one in x]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-6)


REFUSED = {
    "softmax over samples": (
        lambda g: g.node("Softmax", "obs", axis=0, to="y"), "samples",
    ),
    "a sum over samples": (
        lambda g: g.node("ReduceSum", "obs", g.constant([0], "int64"), keepdims=1, to="y"),
        "along the axis of samples",
    ),
    "rows of two samples": (
        lambda g: g.node("Tanh", g.node("Reshape", "obs", g.constant([-1, 16], "int64")), to="y"),
        "joins numbers of several samples",
    ),
    "two axes in place of one": (
        lambda g: g.node("Add", "obs", g.node("Transpose", "obs", perm=[1, 0]), to="y"),
        "samples",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_mixes_samples_is_refused_by_name(name, saved):
    build, reason = REFUSED[name]
    graph = WrittenGraph(17)
    build(graph)
    path = saved(graph.model([tensor("obs", "batch", 8)], [tensor("y", None, None)]))
    with pytest.raises(UnsupportedError, match=reason):
        read_policy(path)


def _distributional(layers, x):
    y = layers.Reshape((3, 11))(layers.Dense(33)(layers.Dense(16, "relu")(x)))
    shares = layers.Softmax()(y)
    return layers.Lambda(lambda p: _expected(p))(shares)


def _expected(shares):
    import tensorflow as tf

    return tf.reduce_sum(shares * tf.linspace(-4.0, 12.0, 11), -1)


def _along_time(layers, x):
    y = layers.Conv1D(6, 3, padding="causal", dilation_rate=2, activation="relu")(x)
    return layers.Dense(3)(layers.GlobalAveragePooling1D()(y))


def _attentive(layers, x):
    y = layers.Dense(8)(x)
    y = layers.LayerNormalization()(y + layers.MultiHeadAttention(2, 4)(y, y))
    return layers.Dense(3)(layers.Flatten()(y))


KERAS = {"c51": (_distributional, (6,)), "conv1d": (_along_time, (6, 4)),
         "attention": (_attentive, (6, 4))}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", KERAS)
def test_policies_of_keras(name, tmp_path):
    import tf_keras as keras

    build, shape = KERAS[name]
    keras.utils.set_random_seed(3)
    x = keras.Input(shape, name="seen")
    model = keras.Model(x, build(keras.layers, x))
    network, given = read_policy(load_keras(model)), observed(shape, 64, 1)
    for check in FORMS.values():
        check(
            network, HEADS["clip"], observed(shape, 200, 2), given, model(given).numpy(), tmp_path
        )
