"""Inputs and outputs: found where they are plain, named where they are not."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import GraphError, LoadError, UsageError
from qgraph.frontends import load_graph_def
from qgraph.interpret import evaluate
from tests.helpers.tf_graphs import graph_def_of, v1


def placeholder(name="x", shape=(None, 3)):
    return v1.placeholder("float32", shape, name)


def trained(loss):
    """A network with a loss, gradients, an optimiser, summaries and a saver."""

    def build():
        x = placeholder()
        labels = v1.placeholder("int32", (None,), "labels")
        w = v1.get_variable("w", initializer=np.ones((3, 4), "float32"), use_resource=False)
        logits = tf.matmul(x, w, name="logits")
        v1.summary.histogram("activations", logits)
        cost = loss(logits, labels)
        v1.summary.scalar("cost", cost)
        v1.train.AdamOptimizer().minimize(cost)
        v1.summary.merge_all()
        v1.train.Saver()
        return []

    return graph_def_of(build)


def cross_entropy(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def test_training_leftovers_are_no_outputs():
    from qgraph.frontends.tf.ends import find_outputs
    from qgraph.frontends.tf.node import read_nodes

    assert find_outputs(read_nodes(trained(cross_entropy))) == ["logits"]


def test_every_head_is_an_output_in_graph_order():
    def build():
        x = placeholder()
        tf.tanh(x, name="b")
        tf.nn.relu(x, name="a")
        v1.Print(x, [x])
        tf.split(x, 3, 1, name="pieces")
        return []

    graph = load_graph_def(graph_def_of(build))
    assert list(graph.outputs) == ["b", "a", "pieces", "pieces:1", "pieces:2"]


def test_only_what_the_outputs_need_is_imported():
    def build():
        x, unused = placeholder(), placeholder("unused")
        tf.nn.relu(x, name="small")
        return tf.tanh(x) + unused

    graph = load_graph_def(graph_def_of(build), outputs=["small:0"])
    assert list(graph.nodes) == ["x", "small"]
    assert graph.inputs == ["x"]
    assert list(graph.outputs) == ["small"]


def test_named_inputs_keep_the_order_they_are_named_in():
    graph_def = graph_def_of(lambda: placeholder("a") - placeholder("b"))
    assert load_graph_def(graph_def).inputs == ["a", "b"]
    assert load_graph_def(graph_def, inputs=["b", "a"]).inputs == ["b", "a"]


def test_named_input_stays_though_nothing_uses_it():
    graph_def = graph_def_of(lambda: [placeholder("a") * 2, placeholder("b") * 2][0])
    graph = load_graph_def(graph_def, inputs=["a", "b"], outputs=["y"])
    assert graph.inputs == ["a", "b"]


def test_graph_can_be_cut_inside():
    def build():
        image = tf.io.decode_jpeg(v1.placeholder("string", (), "jpeg"))
        return tf.nn.relu(tf.cast(image, tf.float32, name="pixels"), name="out")

    graph = load_graph_def(
        graph_def_of(build), inputs=["pixels"], input_shapes={"pixels": (None, None, 3)}
    )
    x = np.linspace(-1, 1, 12, dtype="float32").reshape(2, 2, 3)
    assert graph.inputs == ["pixels"]
    np.testing.assert_array_equal(evaluate(graph, {"pixels": x})["y"], np.maximum(x, 0))


def test_inputs_shape_is_overridden():
    graph = load_graph_def(graph_def_of(lambda: placeholder() * 2), input_shapes={"x": (5, 3)})
    assert str(graph.types["y"]) == "float32[5,3]"


def test_unknown_shape_asks_for_it():
    def build():
        x = v1.placeholder("float32", None, "x")
        return tf.nn.conv2d(x, tf.ones((3, 3, 1, 2)), 1, "SAME", name="conv")

    with pytest.raises(GraphError, match=r"conv: conv2d: needs an NHWC(.|\n)*--input-shape x=1,"):
        load_graph_def(graph_def_of(build))
    graph = load_graph_def(graph_def_of(build), input_shapes={"x": (1, 8, 8, 1)})
    assert str(graph.types["y"]) == "float32[1,8,8,2]"


def test_old_producers_write_unknown_shapes_as_scalars():
    graph_def = graph_def_of(lambda: v1.placeholder("float32", (), "x") * 2)
    assert load_graph_def(graph_def).types["x"].shape == ()
    graph_def.versions.producer = 20
    assert load_graph_def(graph_def).types["x"].shape is None


WRONG = {
    "output": ({"outputs": ["logit"]}, "no output `logit`(.|\n)*`y`, `logits`"),
    "input": ({"inputs": ["X"]}, "no input `X`(.|\n)*candidates: `x`, `other`"),
    "input left out": ({"inputs": ["x"]}, "also need `other`"),
    "shape of no input": ({"input_shapes": {"z": (1,)}}, "`z` is given a shape"),
    "second output as input": ({"inputs": ["x:1"]}, "only a node's first output"),
    "inner input without shape": ({"inputs": ["logits"]}, "--input-shape logits="),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_names_list_candidates(wrong):
    options, message = WRONG[wrong]
    graph_def = graph_def_of(lambda: tf.add(placeholder(), placeholder("other"), name="logits"))
    with pytest.raises(UsageError, match=message):
        load_graph_def(graph_def, **options)


def test_output_that_the_node_does_not_have():
    with pytest.raises(GraphError, match="relu` has no output 1"):
        load_graph_def(
            graph_def_of(lambda: tf.nn.relu(placeholder(), name="relu")), outputs=["relu:1"]
        )


def test_deep_graph_needs_no_recursion():
    graph_def = graph_def_of(placeholder)
    for i in range(20_000):
        node = graph_def.node.add(name=f"relu{i}", op="Relu", input=[f"relu{i - 1}" if i else "y"])
        node.attr["T"].type = tf.float32.as_datatype_enum
    graph = load_graph_def(graph_def)
    assert list(graph.outputs) == ["relu19999"]
    assert len(graph.nodes) == 20_002


def test_graph_without_results():
    with pytest.raises(LoadError, match=r"outputs of the graph cannot(.|\n)*--output"):
        load_graph_def(graph_def_of(lambda: [placeholder(), []][1]))
