"""Training with one power of two for each output channel of weights."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import qgraph
from qgraph import retrain
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.quant.calibrate import calibrate
from qgraph.quant.profile import load_profile
from qgraph.recipes import static
from qgraph.train.freezing import Freezing
from qgraph.train.fused import fused_ops
from qgraph.train.model import TrainingGraph
from qgraph.train.options import Options
from qgraph.train.quantizer import quantize
from qgraph.train.saved_graph.module import write_saved_graph
from qgraph.train.saved_graph.ops import library_ops, stock_ops
from qgraph.train.weight_scales import with_unclipped_weights
from qgraph.verification.verify import verify
from tests.helpers import retraining
from tests.helpers.layers import WINDOW
from tests.helpers.quantized import PROFILES
from tests.helpers.retraining import images

INT4 = replace(load_profile("graffitist-int4"), per_channel=True)


def depthwise() -> tuple[Graph, dict]:
    """A depthwise and a dense layer whose channels have very different weights."""
    rng, graph = np.random.default_rng(0), Graph("depthwise")
    x = graph.input("x", "float32", (None, 6, 6, 3))
    filters = rng.normal(size=(3, 3, 3, 2)) * np.array([[1, 8], [0.1, 2], [0.5, 30]])
    y = graph.add("depthwise_conv2d", x, graph.const(filters.astype("float32"), "w"), attrs=WINDOW)
    weights = (rng.normal(size=(6, 4)) * [1, 0.01, 5, 0.2]).astype("float32")
    pooled = graph.add("mean", graph.add("relu", y), attrs={"axes": (1, 2), "keepdims": False})
    y = graph.add("matmul", pooled, graph.const(weights, "dense"))
    graph.outputs["y"] = y
    feeds = {"x": rng.uniform(-1, 1, (8, 6, 6, 3)).astype("float32")}
    PassManager(static(PROFILES["per-channel-int32"])).run(graph)
    calibrate(graph, feeds)
    return graph, feeds


def test_each_channel_has_its_own_range_and_gradient():
    """The gradients are those of the quantizer with the thresholds in the shape of the channels."""
    graph, feeds = depthwise()
    training = TrainingGraph(graph)
    x = {"x": tf.constant(feeds["x"])}
    with tf.GradientTape() as tape:
        (y,) = training(x).values()
        loss = tf.reduce_sum(y * y)
    gradient = tape.gradient(loss, training.quantizers.ranges).numpy()
    names = training.quantizers.names
    weights = [name for name in names if name.endswith("]")]
    assert len(weights) == 6 + 4 and len(set(names)) == len(names) == len(gradient)
    found = dict(zip(names, gradient, strict=True))
    assert len({found[name] for name in weights if found[name]}) > 5


def test_thresholds_of_depthwise_filters_are_those_of_their_channels():
    rng = np.random.default_rng(1)
    w = rng.normal(size=(3, 3, 2, 2)).astype("float32")
    log2_t = np.array([[0.3, -1.2], [1.0, 0.0]], "float32")
    with tf.GradientTape() as tape:
        given = tf.constant(log2_t)
        tape.watch(given)
        y = quantize(w, given, 4, True)
    gradient = tape.gradient(y, given).numpy()
    for i, j in np.ndindex(2, 2):
        with tf.GradientTape() as tape:
            one = tf.constant(log2_t[i, j])
            tape.watch(one)
            alone = quantize(w[:, :, i, j], one, 4, True)
        np.testing.assert_array_equal(y[:, :, i, j], alone)
        np.testing.assert_allclose(tape.gradient(alone, one), gradient[i, j], rtol=1e-6)


def test_weights_alone_start_from_the_largest_of_each_channel():
    graph, _ = depthwise()
    begun = with_unclipped_weights(graph)
    for node in begun.topological():
        spec = node.attrs.get("spec")
        if spec is not None and spec.role == "weight":
            assert spec.exponent == graph.nodes[node.name].attrs["spec"].exponent  # MAX already
            assert len(set(spec.exponent)) > 1
    coarse = graph.copy()
    for node in graph.topological():
        spec = node.attrs.get("spec")
        if spec is not None and spec.role == "weight":
            finer = tuple(e + 1 for e in spec.exponent)
            coarse.set_attrs(node.name, spec=spec.with_exponent(finer))
    again = with_unclipped_weights(coarse)
    for name, node in begun.nodes.items():
        if node.attrs.get("spec") is not None and node.attrs["spec"].role == "weight":
            assert again.nodes[name].attrs["spec"] == node.attrs["spec"]


def test_as_many_thresholds_are_frozen_together_as_a_quantizer_has():
    graph, _ = depthwise()
    quantizers = TrainingGraph(graph).quantizers
    ranges, count = quantizers.ranges, quantizers.frozen_at_once
    assert count > 1
    freezing = Freezing(ranges, count)
    freezing.gradient.assign(tf.range(len(quantizers.names), 0, -1, dtype=tf.float32))
    chosen = freezing.freeze_next()
    assert len(chosen) == count == freezing.count()
    assert sorted(chosen) == list(range(len(quantizers.names) - count, len(quantizers.names)))
    for _ in range(-(-len(quantizers.names) // count)):
        freezing.freeze_next()
    assert freezing.count() == len(quantizers.names) and freezing.freeze_next() == []


@pytest.mark.parametrize("overflow", ["saturate", "wrap"])
def test_trained_and_finalized_all_forms_are_equal(tmp_path, overflow):
    profile = replace(INT4, overflow=overflow)
    made = qgraph.quantize(retraining.keras_network(), images(), mode="retrain", profile=profile)
    retrain.save(made, tmp_path / "out")
    x, labels = retraining.task(made.floating, 96)
    options = Options(epochs=2, batch_size=16, weight_rate=1e-3, freeze_start=4, freeze_every=2)
    run = retrain.train(tmp_path / "out", ({"image": x}, labels), options=options)
    assert run.freezing.count() > run.freezing.at_once > 1
    final = retrain.finalize(tmp_path / "out", last=True)
    specs = [n.attrs["spec"] for n in final.graph.topological() if "spec" in n.attrs]
    assert any(isinstance(spec.exponent, tuple) for spec in specs)
    feeds = {final.graph.inputs[0]: images(8, seed=3)}
    found = tf.function(run.model)({n: tf.constant(v) for n, v in feeds.items()})
    for name, value in Reference(final.graph).outputs(feeds).items():
        np.testing.assert_array_equal(found[name], value)
    assert verify(final.save(tmp_path / "inference")).equal


@pytest.mark.parametrize("form", ["stock", "library"])
def test_the_saved_training_graph_has_its_values_and_gradients(tmp_path, form):
    if form == "library" and fused_ops().ops is None:
        pytest.skip("the fused ops are not built")
    graph, feeds = depthwise()
    ops = library_ops() if form == "library" else stock_ops()
    write_saved_graph(tmp_path / "saved", graph, (), ops)
    loaded, training = tf.saved_model.load(tmp_path / "saved"), TrainingGraph(graph)
    x = tf.constant(feeds["x"])
    found = []
    for run, ranges in (
        (lambda: loaded(x, training=True)["y"], loaded.thresholds[0]),
        (lambda: tf.function(training)({"x": x})["y"], training.quantizers.ranges),
    ):
        with tf.GradientTape() as tape:
            y = run()
        found.append((y, tape.gradient(y, ranges, tf.random.stateless_normal(y.shape, (1, 2)))))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5, atol=1e-7)
