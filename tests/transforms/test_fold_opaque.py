"""Results that only TensorFlow or ONNX can compute from constants are constants."""

import numpy as np
import pytest
import tensorflow as tf
from onnx import helper

from qgraph.frontends import load_graph_def
from qgraph.interpret import evaluate
from qgraph.passes import PassManager
from qgraph.rewrite.trace import Trace
from qgraph.transforms.fold_constants import FoldConstants
from tests.helpers.evaluate import reasons
from tests.helpers.graphs import opaque_kinds
from tests.helpers.onnx_graphs import f, imported, ints, model_of
from tests.helpers.tf_graphs import graph_def_of, run_tf, v1

WEIGHTS = np.random.default_rng(4).uniform(-1, 1, (6, 6)).astype(np.float32)
quantization = tf.quantization
TENSORFLOW = {
    "Round": lambda w: tf.round(w * 64) / 64,
    "Sign": lambda w: tf.sign(w) * tf.reduce_mean(tf.abs(w)),
    "Einsum": lambda w: tf.raw_ops.Einsum(inputs=[w, w], equation="ii,ij->ij"),
    "clip": lambda w: tf.clip_by_value(tf.round(w * 8) / 8, -0.5, 0.5),
    "FakeQuantWithMinMaxVars": lambda w: quantization.fake_quant_with_min_max_vars(w, -0.7, 0.7),
    "FakeQuantWithMinMaxArgs": lambda w: quantization.fake_quant_with_min_max_args(w, -0.7, 0.7),
    "FakeQuantWithMinMaxVarsPerChannel": lambda w: (
        quantization.fake_quant_with_min_max_vars_per_channel(w, [-0.5] * 6, [0.5] * 6)
    ),
    "QuantizeAndDequantizeV4": lambda w: quantization.quantize_and_dequantize_v2(w, -1, 1),
    "Qr": lambda w: tf.matmul(*tf.linalg.qr(w)),
    "TopKV2": lambda w: tf.math.top_k(w, 6)[0] + tf.cast(tf.math.top_k(w, 6)[1], "float32"),
    "Where": lambda w: tf.where(w > 0, w, tf.zeros_like(w)),
}


@pytest.mark.parametrize("case", TENSORFLOW)
def test_weights_that_tensorflow_computes_are_constants(case):
    def build():
        return tf.matmul(v1.placeholder("float32", (None, 6), "x"), TENSORFLOW[case](WEIGHTS))

    graph_def = graph_def_of(build)
    graph = load_graph_def(graph_def)
    FoldConstants().run(graph)
    graph.verify()
    assert {n.op for n in graph.nodes.values()} - {"identity"} == {"input", "const", "matmul"}
    x = f(3, 6)
    (wanted,) = run_tf(graph_def, {"x": x}, ["y"])
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], wanted, atol=1e-5)


ONNX = {
    "Mod": helper.make_node("Mod", ["w", "w"], ["v"], fmod=1),
    "Einsum": helper.make_node("Einsum", ["w", "w"], ["v"], equation="ii,ij->ij"),
    "TopK": helper.make_node("TopK", ["w", "k"], ["v", "i"]),
    "DequantizeLinear": helper.make_node("DequantizeLinear", ["c", "s"], ["v"], axis=0),
}


@pytest.mark.parametrize("case", ONNX)
def test_weights_that_onnx_computes_are_constants(case):
    count = 48  # more elements than shape arithmetic has
    constants = {
        "w": f(count, count),
        "c": np.arange(count**2).reshape(count, count).astype(np.int8),
        "s": np.linspace(0.1, 1, count).astype(np.float32),
        "k": ints(count),
    }
    nodes = [ONNX[case], helper.make_node("MatMul", ["x", "v"], ["y"])]
    used = {name: constants[name] for name in ONNX[case].input}
    graph = imported(model_of(nodes, {"x": (2, count)}, constants=used))
    x = {"x": f(2, count)}
    wanted = evaluate(graph, x)["y"]
    assert opaque_kinds(graph) == [case]
    FoldConstants().run(graph)
    graph.verify()
    assert opaque_kinds(graph) == []
    np.testing.assert_array_equal(evaluate(graph, x)["y"], wanted)


def test_result_that_is_too_large_is_not_computed():
    def build():
        tiled = tf.linalg.diag(tf.ones(1 << 13) * tf.constant(WEIGHTS)[0, 0])
        return v1.placeholder("float32", (None, 6), "x") + tiled[:1, :6]

    graph = load_graph_def(graph_def_of(build))
    FoldConstants().run(graph)
    assert [n.attrs["kind"] for n in graph.nodes.values() if n.op == "opaque"] == ["MatrixDiagV3"]


def test_random_numbers_are_not_constants():
    graph = load_graph_def(graph_def_of(lambda: tf.random.uniform((2, 3)) + tf.ones((2, 3))))
    trace = Trace()
    PassManager((FoldConstants(),)).run(graph, trace)
    assert "`RandomUniform` has state, such as random numbers" in dict(reasons(trace)).values()
    (found,) = evaluate(graph, {}).values()
    assert found.shape == (2, 3) and (found >= 1).all() and (found < 2).all()
