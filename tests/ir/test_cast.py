import numpy as np
import tensorflow as tf

from qgraph.interpret import evaluate
from qgraph.ir.cast import cast_floats
from qgraph.ir.verify import verify
from tests.helpers.generators.graphs import random_graph
from tests.helpers.graphs import opaque_kinds
from tests.helpers.tf_graphs import graph_def_of, v1


def test_everything_is_float64():
    graph = random_graph(3, dtype="float32")
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
        return tf.math.log(tf.math.cumprod(x, axis=1))

    graph = load_graph_def(graph_def_of(build))
    assert opaque_kinds(graph) == ["Cumprod"]
    exact = cast_floats(graph, "float64")
    verify(exact)
    x = np.random.default_rng(0).uniform(1, 2, (2, 3))
    (wanted,) = evaluate(graph, {"x": x.astype(np.float32)}).values()
    (found,) = evaluate(exact, {"x": x}).values()
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_integers_are_left_alone():
    graph = random_graph(1, dtype="float32")
    graph.const(np.arange(3), "counts")
    assert cast_floats(graph, "float64").types["counts"].dtype == "int64"


def test_outputs_of_unknown_ops_are_cast_one_by_one():
    from qgraph.frontends import load_graph_def

    def build():
        x = v1.placeholder("float32", (2, 4), "x")
        low, high = tf.raw_ops.TopKV2(input=x, k=2)
        return tf.math.exp(low), high

    graph = load_graph_def(graph_def_of(build))
    exact = cast_floats(graph, "float64")
    verify(exact)
    x = np.float32([[1, 4, 2, 3], [8, 5, 6, 7]])
    wanted, found = evaluate(graph, {"x": x}), evaluate(exact, {"x": x.astype(np.float64)})
    assert [a.dtype for a in found.values()] == [np.float64, np.int32]
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6)


def test_casts_between_float_types_become_identities():
    graph = random_graph(1, dtype="float32")
    wide = graph.add("cast", next(iter(graph.outputs.values())), attrs={"dtype": "float64"})
    graph.outputs["wide"] = graph.add("relu", wide)
    single = cast_floats(graph, "float32")
    assert "cast" not in {n.op for n in single.nodes.values()}
    assert single.types[single.outputs["wide"]].dtype == "float32"
