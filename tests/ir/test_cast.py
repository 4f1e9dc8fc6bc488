import numpy as np
import tensorflow as tf

from qgraph.interpret import evaluate
from qgraph.ir.cast import cast_floats
from qgraph.ir.verify import verify
from tests.helpers.random_graphs import random_cnn
from tests.helpers.tf_graphs import graph_def_of, opaque_kinds, v1


def test_everything_is_float64():
    graph = random_cnn(3, dtype="float32")
    exact = cast_floats(graph, "float64")
    verify(exact)
    assert {t.dtype for t in graph.types.values() if t.is_float} == {"float32"}
    assert {t.dtype for t in exact.types.values() if t.is_float} == {"float64"}
    assert exact.inputs == graph.inputs
    assert exact.outputs == graph.outputs


def test_unknown_ops_keep_their_types():
    from qgraph.frontends import load_graph_def

    def build():
        x = v1.placeholder("float32", (2, 3), "x")
        return tf.math.log(tf.raw_ops.DivNoNan(x=x, y=x + 3))

    graph = load_graph_def(graph_def_of(build))
    assert opaque_kinds(graph) == ["DivNoNan"]
    exact = cast_floats(graph, "float64")
    verify(exact)
    x = np.random.default_rng(0).uniform(1, 2, (2, 3))
    (wanted,) = evaluate(graph, {"x": x.astype(np.float32)}).values()
    (found,) = evaluate(exact, {"x": x}).values()
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_integers_are_left_alone():
    graph = random_cnn(1, dtype="float32")
    graph.const(np.arange(3), "counts")
    assert cast_floats(graph, "float64").types["counts"].dtype == "int64"
