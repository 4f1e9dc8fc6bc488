"""Networks that merge time steps into the batch, as Keras' TimeDistributed does, on any batch."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from qgraph.compiler import quantize
from qgraph.errors import UsageError
from qgraph.frontends import load_graph_def, load_keras
from qgraph.runtime import Session
from qgraph.stored import load_network
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.tf_graphs import graph_def_of, v1

layers = keras.layers
STEPS = np.random.default_rng(3).uniform(-1, 1, (12, 5, 6, 6, 3)).astype(np.float32)


def over_time(*inner):
    return lambda x: layers.TimeDistributed(keras.Sequential([*inner]))(x)


def conv():
    return layers.Conv2D(4, 3, activation="relu")


NETWORKS = {
    "convolutions": lambda x: layers.Dense(3)(
        layers.Flatten()(over_time(conv(), layers.Flatten(), layers.Dense(5))(x))
    ),
    "steps at the end": lambda x: over_time(conv(), layers.MaxPool2D())(x),
    "float at the end": lambda x: over_time(
        conv(), layers.Flatten(), layers.Dense(3, activation="softmax")
    )(x),
    "unknown ops in front": lambda x: over_time(layers.Resizing(4, 4), conv(), layers.Flatten())(x),
}


@pytest.fixture(scope="module", params=NETWORKS)
def made(request, tmp_path_factory):
    keras.utils.set_random_seed(1)
    steps = keras.Input(STEPS.shape[1:], name="steps")
    model = keras.Model(steps, NETWORKS[request.param](steps), name="net")
    result = quantize(load_keras(model), {"steps": STEPS}, effort="plain")
    return result, result.save(tmp_path_factory.mktemp("steps") / "out")


@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("samples", [1, 2, 7])
def test_any_number_of_samples_is_run(made, samples, batch):
    result, out = made
    feeds = {"steps": STEPS[:samples]}
    found = Session.open(out).run(feeds, batch)
    for name, array in result.reference().outputs(feeds).items():
        np.testing.assert_array_equal(found[name], array)


@needs_compiler
def test_forms_are_verified(made):
    _, out = made
    network = load_network(out)
    assert network.program.blocks_free and not network.program.batch_free
    checked = verify(out, forms=["tensorflow", "engine", "c"])
    assert checked.equal and not checked.refused


def test_samples_that_a_network_mixes_are_refused_together():
    def build():
        x = v1.placeholder("float32", (None, 4), "x")
        w = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)
        y = tf.nn.relu(tf.matmul(x, w))
        return tf.matmul(y - tf.reduce_max(y, axis=0, keepdims=True), w[:, :3])

    data = np.random.default_rng(2).normal(size=(8, 4)).astype(np.float32)
    result = quantize(load_graph_def(graph_def_of(build)), {"x": data}, effort="plain")
    session = _session(result)
    assert not session.program.batch_free and not session.program.blocks_free
    one = session.run({"x": data[:1]})
    np.testing.assert_array_equal(one["y"], result.reference().outputs({"x": data[:1]})["y"])
    with pytest.raises(UsageError, match="computes across samples"):
        session.run({"x": data})


def _session(result):
    from qgraph.backends.engine import Engine
    from qgraph.program import lower

    program = lower(result.graph)
    return Session(result.graph, program, Engine.of(program))
