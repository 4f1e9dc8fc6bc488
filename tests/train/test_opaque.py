"""Training of networks with ops that qgraph does not support: TensorFlow runs them, in float."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph import retrain
from qgraph.compiler import quantize
from qgraph.errors import UnsupportedError
from qgraph.exact.reference import Reference
from qgraph.frontends import load_graph_def
from qgraph.ir.printing import print_graph
from qgraph.train.options import Options
from qgraph.verification.verify import verify
from tests.helpers.onnx_graphs import f, imported, one_op
from tests.helpers.resized_networks import layer, resize
from tests.helpers.tf_graphs import graph_def_of, v1

IMAGES = np.random.default_rng(2).uniform(-1, 2, (16, 8, 8, 3)).astype(np.float32)
OPTIONS = Options(epochs=1, batch_size=8, weight_rate=1e-3, loss="mse")


def area(x):
    """An op that TensorFlow cannot differentiate."""
    return tf.compat.v1.image.resize_area(x, x.shape[1:3])


def quantized(network):
    def build():
        return network(v1.placeholder("float32", (None, 8, 8, 3), "image"))

    graph_def = graph_def_of(build)
    return quantize(load_graph_def(graph_def), {"image": IMAGES}, mode="retrain")


NETWORKS = {
    "in front": lambda x: layer(layer(resize(x, 6))),
    "between layers": lambda x: layer(resize(layer(x), 6)),
    "behind": lambda x: resize(layer(x), 12),
    "in front, without a gradient": lambda x: layer(area(x)),
}


@pytest.mark.parametrize("case", NETWORKS)
def test_it_trains_and_ends_in_integers(case, tmp_path):
    made = quantized(NETWORKS[case])
    assert any(node.op == "opaque" for node in made.graph.topological())
    retrain.save(made, tmp_path / "out")
    found = retrain.load(tmp_path / "out")
    assert print_graph(found.graph) == print_graph(made.graph)
    run = retrain.train(tmp_path / "out", {"image": IMAGES}, {"image": IMAGES}, OPTIONS)
    start = found.model().weights
    moved = [n for n, v in run.model.weights.items() if (v.numpy() != start[n].numpy()).any()]
    assert set(moved) == set(start)
    final = retrain.finalize(tmp_path / "out", last=True)
    trained = tf.function(run.model)({"image": tf.constant(IMAGES[:4])})
    for name, value in Reference(final.graph).outputs({"image": IMAGES[:4]}).items():
        np.testing.assert_allclose(trained[name], value, rtol=1e-6, atol=1e-6)
    checked = verify(final.save(tmp_path / "inference"), forms=["tensorflow", "engine"])
    assert checked.equal and not checked.refused


def test_an_op_without_a_gradient_is_named(tmp_path):
    made = quantized(lambda x: layer(area(layer(x))))
    (op,) = (node for node in made.graph.topological() if node.op == "opaque")
    retrain.save(made, tmp_path / "out")
    with pytest.raises(UnsupportedError, match="`ResizeArea` has no gradient") as refusal:
        retrain.train(tmp_path / "out", {"image": IMAGES}, {"image": IMAGES}, OPTIONS)
    assert refusal.value.node == op.name and "--output" in str(refusal.value)


@pytest.mark.parametrize("function", [tf.round, tf.floor, tf.math.ceil, tf.sign])
@pytest.mark.parametrize("place", ["between layers", "behind"])
def test_a_function_that_rounds_is_named_too(function, place, tmp_path):
    """Its gradient is 0, so that layers before it would silently stay as they are."""

    def network(x):
        y = function(layer(x) * 4)
        return layer(y) if place == "between layers" else y

    retrain.save(quantized(network), tmp_path / "out")
    with pytest.raises(UnsupportedError, match="has no gradient, so nothing before it"):
        retrain.train(tmp_path / "out", {"image": IMAGES}, {"image": IMAGES}, OPTIONS)


def test_another_output_trains_beside_it(tmp_path):
    def network(x):
        y = layer(x)
        return [area(y), layer(y)]

    made = quantized(network)
    retrain.save(made, tmp_path / "out")
    first, second = made.graph.outputs
    options = Options(epochs=1, batch_size=8, loss="mse", output=second)
    run = retrain.train(tmp_path / "out", {"image": IMAGES}, {"image": IMAGES}, options)
    assert run.at.step == 2
    with pytest.raises(UnsupportedError, match="has no gradient"):
        retrain.trainer(
            tmp_path / "out", {"image": IMAGES}, {"image": IMAGES},
            Options(epochs=1, batch_size=8, loss="mse", output=first), restart=True,
        ).run()  # fmt: skip


def test_an_op_of_onnx_is_refused(tmp_path):
    graph = imported(one_op("Mod", f(4, 8), f(4, 8), fmod=1))
    made = quantize(graph, {graph.inputs[0]: f(4, 8)}, mode="retrain")
    with pytest.raises(UnsupportedError, match="`Mod` is not supported in training"):
        retrain.save(made, tmp_path / "out")
