"""Folded batch norms at work in training: what Keras does in training; inference when frozen."""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.quant.calibrate import calibrate
from qgraph.quant.plan import Plan
from qgraph.quant.profile import load_profile
from qgraph.recipes import insert, prepare
from qgraph.train.folded import norms_of
from qgraph.train.model import TrainingGraph
from tests.helpers.retraining import images, keras_network, network_of_other_norms
from tests.train.test_training_graph import assert_is_inference

layers = keras.layers


def folded(model: keras.Model, plan: Plan, tmp_path) -> Graph:
    model.save(tmp_path / "m.h5")
    graph = load(tmp_path / "m.h5")
    PassManager(prepare(plan)).run(graph)
    return graph


PLANS = pytest.mark.parametrize(
    "plan", [Plan(), Plan(equalize="weights")], ids=["plain", "equalized"]
)
MODELS = pytest.mark.parametrize(
    ("made", "sides"),
    [
        (keras_network, ["output"] * 3),
        (partial(keras_network, epsilon=0.0), ["output"] * 3),
        (network_of_other_norms, ["input", "output", "input", "output", "input"]),
    ],
)


@PLANS
@MODELS
def test_without_quantizers_the_graph_is_the_float_network_in_training(made, sides, plan, tmp_path):
    model, x = made(), images(32)
    graph = folded(model, plan, tmp_path)
    norms = norms_of(graph)
    assert [norm.side for norm in norms] == sides
    training = TrainingGraph(graph, norms)
    values, updates = training.values({graph.inputs[0]: tf.constant(x)}, batch_statistics=True)
    (found,) = training.outputs(values).values()
    for variable, value in updates:
        variable.assign(value)
    np.testing.assert_allclose(found, model(x, training=True), rtol=2e-4, atol=2e-5)
    assert not np.allclose(found, model(x, training=False), atol=0.1)
    # What the running statistics have become, seen through what they do.
    (found,) = training({graph.inputs[0]: tf.constant(x)}).values()
    np.testing.assert_allclose(found, model(x, training=False), rtol=2e-4, atol=2e-5)


@MODELS
def test_gradients_are_those_of_the_float_network(made, sides, tmp_path):
    """Compare those of the input: weights are in another unit here."""
    model, x = made(), tf.constant(images(32))
    graph = folded(model, Plan(), tmp_path)
    training = TrainingGraph(graph, norms_of(graph))
    weights = tf.random.normal([32, 5], seed=3)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        values, _ = training.values({graph.inputs[0]: x}, batch_statistics=True)
        (y,) = training.outputs(values).values()
        ours = tf.reduce_sum(weights * y**2)
        wanted = tf.reduce_sum(weights * model(x, training=True) ** 2)
    expected = tape.gradient(wanted, x)
    difference = tf.norm(tape.gradient(ours, x) - expected) / tf.norm(expected)
    assert float(difference) < 1e-4


def test_it_stays_so_when_gamma_moves(tmp_path):
    model, x = keras_network(), images(32)
    graph = folded(model, Plan(), tmp_path)
    training, rng = TrainingGraph(graph, norms_of(graph)), np.random.default_rng(1)
    kept = [layer for layer in model.layers if isinstance(layer, layers.BatchNormalization)]
    for gamma, layer in zip(training.gammas, kept, strict=True):
        factor = (rng.uniform(0.3, 3, gamma.shape) * rng.choice([-1, 1], gamma.shape)).astype("f")
        gamma.assign(gamma * factor)
        layer.gamma.assign(layer.gamma * factor)
    fed = {graph.inputs[0]: tf.constant(x)}
    values, updates = training.values(fed, batch_statistics=True)
    (found,) = training.outputs(values).values()
    for variable, value in updates:
        variable.assign(value)
    np.testing.assert_allclose(found, model(x, training=True), rtol=2e-4, atol=2e-5)
    (found,) = training(fed).values()
    np.testing.assert_allclose(found, model(x, training=False), rtol=2e-4, atol=2e-5)


def test_gradients_for_gamma_are_those_of_the_float_network(tmp_path):
    model, x = keras_network(), tf.constant(images(32))
    graph = folded(model, Plan(), tmp_path)
    training = TrainingGraph(graph, norms_of(graph))
    kept = [layer for layer in model.layers if isinstance(layer, layers.BatchNormalization)]
    with tf.GradientTape(persistent=True) as tape:
        values, _ = training.values({graph.inputs[0]: x}, batch_statistics=True)
        (y,) = training.outputs(values).values()
        ours, wanted = (
            tf.reduce_sum(v**2 * tf.range(1.0, 6.0)) for v in (y, model(x, training=True))
        )
    for gamma, layer in zip(training.gammas, kept, strict=True):
        expected = tape.gradient(wanted, layer.gamma) * layer.gamma
        np.testing.assert_allclose(tape.gradient(ours, gamma), expected, rtol=1e-3, atol=1e-2)


def test_a_channel_that_gamma_switched_off_stays_defined(tmp_path):
    model = keras_network()
    norm = next(x for x in model.layers if isinstance(x, layers.BatchNormalization))
    norm.gamma.assign(tf.tensor_scatter_nd_update(norm.gamma, [[2]], [0.0]))
    graph = folded(model, Plan(), tmp_path)
    training = TrainingGraph(graph, norms_of(graph))
    with tf.GradientTape() as tape:
        fed = {graph.inputs[0]: tf.constant(images())}
        values, _ = training.values(fed, batch_statistics=True)
        (found,) = training.outputs(values).values()
    np.testing.assert_allclose(found, model(images(), training=True), rtol=2e-4, atol=2e-5)
    for gradient in tape.gradient(found, [*training.kernels, *training.gammas]):
        assert np.isfinite(gradient).all()


@MODELS
def test_a_frozen_graph_computes_inference_to_the_bit(made, sides, tmp_path):
    """At first, and when weights, scales and statistics have moved."""
    graph, feeds = folded(made(), Plan(), tmp_path), {}
    norms, feeds[graph.inputs[0]] = norms_of(graph), images()
    PassManager(insert(load_profile("graffitist-int8"))).run(graph)
    calibrate(graph, feeds)
    training, rng = TrainingGraph(graph, norms), np.random.default_rng(5)
    before = {n: graph.nodes[n].attrs["value"] for n in training.weights}
    for name, value in training.constants().items():
        np.testing.assert_array_equal(value, before[name])
    assert_is_inference(training, feeds)
    for variable in [*training.gammas, *training.norms.statistics]:
        variable.assign(variable * rng.uniform(0.8, 1.2, variable.shape).astype("float32"))
    assert_is_inference(training, feeds)
    now = training.constants()
    for name in {name for norm in norms for name in (norm.weights, norm.bias)}:
        assert not np.array_equal(now[name], before[name])


@pytest.mark.parametrize("power", [-40, -20, 40])
def test_batch_statistics_work_at_every_magnitude(power):
    """Epsilon is small beside the variance, not beside 1."""
    found = []
    for size in (0, power):
        rng = np.random.default_rng(0)
        g = Graph("net")

        def const(value, power, g=g):
            return g.const(np.ldexp(value, power).astype(np.float32))

        w = const(rng.normal(0, 0.5, (6, 4)), 0)
        y = g.add("matmul", g.input("x", "float32", (None, 6)), w, name="fc")
        statistics = [
            const(rng.uniform(0.5, 1.5, 4), size), const(rng.normal(size=4), size),
            const(rng.normal(size=4), size), const(rng.uniform(0.5, 2, 4), 2 * size),
        ]  # fmt: skip
        attrs = {"epsilon": 2.0 ** (2 * size - 10)}
        g.outputs["y"] = g.add("batch_norm", y, *statistics, name="bn", attrs=attrs)
        x = np.ldexp(rng.normal(size=(32, 6)), size).astype(np.float32)
        PassManager(prepare(Plan())).run(g)
        training = TrainingGraph(g, norms_of(g))
        values, _ = training.values({"x": tf.constant(x)}, batch_statistics=True)
        found.append(np.ldexp(training.outputs(values)["y"].numpy(), -size))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)
