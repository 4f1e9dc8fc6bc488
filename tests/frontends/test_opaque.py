"""Ops that are not supported stay opaque, and run by their source."""

import pytest
import tensorflow as tf

from qgraph.frontends import load_graph_def
from tests.helpers.graphs import opaque_kinds
from tests.helpers.tf_graphs import assert_same_as_tf, graph_def_of, v1
from tests.helpers.tf_layers import MATRIX, raw, weights

OPAQUE = {
    "Select": lambda x: raw.Select(condition=x[:, 0] > 0, x=x, y=-x),
    "TopKV2": lambda x: list(tf.math.top_k(x, 2)),
    "Lgamma": lambda x: tf.math.lgamma(tf.abs(x) + 1),
    "MaxPool": lambda x: raw.MaxPool(
        input=tf.reshape(x, [-1, 1, 1, 6]), ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding="SAME"
    ),
    "Conv3D": lambda x: tf.nn.conv3d(
        tf.reshape(x, [-1, 1, 2, 3, 1]), weights(x, 1, 2, 2, 1, 1) * x[0, 0], [1] * 5, "SAME"
    ),
    "Einsum": lambda x: raw.Einsum(inputs=[tf.linalg.diag(x)], equation="bii->bi"),
}


@pytest.mark.parametrize("kind", OPAQUE)
def test_opaque_op_runs_by_its_source(kind):
    graph_def = graph_def_of(lambda: OPAQUE[kind](v1.placeholder("float32", MATRIX, "x")))
    graph = assert_same_as_tf(graph_def)
    assert kind in opaque_kinds(graph)


def test_opaque_types_come_from_tensorflow():
    graph_def = graph_def_of(
        lambda: list(tf.math.top_k(v1.placeholder("float32", MATRIX, "x"), 2, name="top"))
    )
    graph = load_graph_def(graph_def)
    assert str(graph.types["top"]) == "float32[?,2]"
    assert str(graph.types["top:1"]) == "int32[?,2]"


def test_opaque_type_uses_what_is_known_of_a_shape():
    def build():
        x = v1.placeholder("float32", (None, 4, 4, 3), "x")
        shape = tf.stack([tf.shape(x)[0], 8, 8, 5])
        return tf.nn.conv2d_transpose(
            x, weights(x, 3, 3, 5, 3) * tf.reduce_mean(x), shape, 2, name="up"
        )

    graph = assert_same_as_tf(graph_def_of(build))
    up = next(n for n in graph.nodes.values() if n.attrs.get("kind") == "Conv2DBackpropInput")
    assert str(graph.types[up.name]) == "float32[?,8,8,5]"


def test_opaque_op_with_a_function_of_the_library():
    @tf.function
    def halve(x):
        return x / 2

    def build():
        x = v1.placeholder("float32", MATRIX, "x")
        return tf.cond(tf.reduce_sum(x) > 0, lambda: halve(x), lambda: x)

    tf.compat.v1.enable_control_flow_v2()
    graph = assert_same_as_tf(graph_def_of(build))
    assert opaque_kinds(graph) in (["If"], ["StatelessIf"])
