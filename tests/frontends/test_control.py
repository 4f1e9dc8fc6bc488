"""Branches, loops, functions, control edges and dropout."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import GraphError, UnsupportedError
from qgraph.frontends import load_graph_def
from qgraph.interpret import evaluate
from tests.helpers.graphs import opaque_kinds
from tests.helpers.tf_graphs import assert_same_as_tf, graph_def_of, v1

X = np.linspace(-2, 2, 6, dtype="float32").reshape(2, 3)


@pytest.fixture
def control_flow_v1():
    v1.disable_control_flow_v2()
    yield
    v1.enable_control_flow_v2()


def placeholder(name="x"):
    return v1.placeholder("float32", (None, 3), name)


@pytest.mark.usefixtures("control_flow_v1")
@pytest.mark.parametrize("taken", [True, False])
def test_branch_of_a_constant_condition(taken):
    def build():
        x = placeholder()
        return v1.cond(tf.constant(taken), lambda: x * 2, lambda: tf.nn.relu(x - 1))

    graph = assert_same_as_tf(graph_def_of(build))
    assert ("mul" in {n.op for n in graph.nodes.values()}) is taken
    assert ("relu" in {n.op for n in graph.nodes.values()}) is not taken


@pytest.mark.usefixtures("control_flow_v1")
@pytest.mark.parametrize("taken", [True, False])
def test_branches_that_are_constants_lie_there_by_control_edges_only(taken):
    def build():
        x = placeholder()
        return x + v1.cond(tf.constant(taken), lambda: tf.constant(2.0), lambda: tf.constant(5.0))

    graph = load_graph_def(graph_def_of(build))
    np.testing.assert_array_equal(evaluate(graph, {"x": X})["y"], X + (2 if taken else 5))


@pytest.mark.usefixtures("control_flow_v1")
def test_learning_phase_counts_as_its_default():
    def build():
        x = placeholder()
        training = v1.placeholder_with_default(False, (), "keras_learning_phase")
        return v1.cond(
            tf.logical_and(training, True), lambda: tf.random.uniform((3,)) * x, lambda: x
        )

    graph = load_graph_def(graph_def_of(build))
    assert graph.inputs == ["x"]
    assert {n.op for n in graph.nodes.values()} == {"input", "identity"}


@pytest.mark.usefixtures("control_flow_v1")
def test_branch_of_a_placeholder_is_refused():
    def build():
        x = placeholder()
        return v1.cond(v1.placeholder("bool", (), "is_training"), lambda: x * 2, lambda: x)

    with pytest.raises(UnsupportedError, match=r"cond/.*depends on a value that is unknown"):
        load_graph_def(graph_def_of(build))


@pytest.mark.usefixtures("control_flow_v1")
def test_loop_is_refused_by_name():
    def build():
        return v1.while_loop(lambda i: tf.reduce_sum(i) < 9, lambda i: i + 1, [placeholder()])

    with pytest.raises(UnsupportedError, match=r"this layer is a loop \(`\w+` at `while/\w+`\)"):
        load_graph_def(graph_def_of(build))


def test_placeholder_with_default_is_its_default_or_an_input():
    def build():
        x = placeholder()
        return x * v1.placeholder_with_default(tf.constant(3.0), (), "scale")

    graph_def = graph_def_of(build)
    plain = load_graph_def(graph_def)
    assert plain.inputs == ["x"]
    np.testing.assert_array_equal(evaluate(plain, {"x": X})["y"], X * 3)
    named = load_graph_def(graph_def, inputs=["scale", "x:0"])
    assert named.inputs == ["scale", "x"]
    np.testing.assert_array_equal(evaluate(named, {"x": X, "scale": np.float32(4)})["y"], X * 4)


def test_calls_of_functions_are_inlined():
    @tf.function
    def inner(x):
        return tf.nn.relu(x) + 1

    @tf.function
    def outer(x):
        return inner(x) * 2, inner(-x)

    graph = assert_same_as_tf(graph_def_of(lambda: outer(placeholder())))
    assert opaque_kinds(graph) == []
    assert sum(n.op == "relu" for n in graph.nodes.values()) == 2


@pytest.mark.parametrize("training", [True, False])
def test_functional_branch_of_a_known_condition_is_inlined(training):
    def build():
        x = placeholder()
        phase = v1.placeholder_with_default(training, (), "keras_learning_phase")
        return tf.cond(tf.identity(phase), lambda: tf.nn.relu(x) * 2, lambda: x - 1)

    graph = assert_same_as_tf(graph_def_of(build))
    assert opaque_kinds(graph) == []
    assert ("relu" in {n.op for n in graph.nodes.values()}) is training


def test_branch_within_a_function_is_inlined_too():
    @tf.function
    def inner(x):
        return tf.cond(tf.constant(False), lambda: x, lambda: tf.nn.relu(x))

    graph = assert_same_as_tf(
        graph_def_of(lambda: tf.function(lambda x: inner(x) + 1)(placeholder()))
    )
    assert opaque_kinds(graph) == []


@tf.function
def doubled(x):
    return x * 2


@pytest.fixture
def calling():
    """A graph that calls a function."""
    return graph_def_of(lambda: doubled(placeholder()))


def test_function_that_calls_itself_is_refused(calling):
    (function,) = calling.library.function
    (call,) = (n for n in calling.node if n.op == "PartitionedCall")
    inner = function.node_def.add(name="again", op=call.op, input=["x"])
    for key, value in call.attr.items():
        inner.attr[key].CopyFrom(value)
    with pytest.raises(GraphError, match="functions call each other endlessly"):
        load_graph_def(calling)


def test_call_with_too_few_arguments_is_named(calling):
    (call,) = (n for n in calling.node if n.op == "PartitionedCall")
    del call.input[:]
    with pytest.raises(GraphError, match=r"PartitionedCall: the call of `\w+` is malformed"):
        load_graph_def(calling)


def test_print_is_passed_over():
    def build():
        x = placeholder()
        v1.Print(x, [x])
        return v1.Print(x * 2, [x])

    graph = load_graph_def(graph_def_of(build))
    assert list(graph.outputs) == ["y"]
    np.testing.assert_array_equal(evaluate(graph, {"x": X})["y"], X * 2)


# -- control edges --------------------------------------------------------------------------


def control_of(build, name):
    return load_graph_def(graph_def_of(build)).nodes[name].control


def test_control_edge_between_imported_nodes_is_kept():
    def build():
        x = placeholder()
        first = tf.round(x, name="first")
        with tf.control_dependencies([first]):
            return first + tf.nn.relu(x, name="second")

    assert control_of(build, "second") == ("first",)


def test_control_edge_through_a_noop_leads_to_what_was_imported():
    def build():
        x = placeholder()
        first = tf.round(x, name="first")
        with tf.control_dependencies([tf.group(first, tf.random.uniform((2,)))]):
            return first + tf.nn.relu(x, name="second")

    assert control_of(build, "second") == ("first",)


def test_control_edge_to_what_no_output_needs_is_dropped():
    def build():
        x = placeholder()
        with tf.control_dependencies([v1.Assert(tf.reduce_all(x > 0), [x])]):
            return tf.nn.relu(x, name="second")

    assert control_of(build, "second") == ()


def test_control_edge_to_a_constant_is_dropped():
    def build():
        x, c = placeholder(), tf.constant([1.0, 2, 3], name="c")
        read = tf.identity(c, name="read")
        with tf.control_dependencies([c, read]):
            second = tf.nn.relu(x, name="second")
        return second + c * read

    assert control_of(build, "second") == ()


def test_dropout_of_a_frozen_graph_imports():
    graph = load_graph_def(graph_def_of(lambda: v1.nn.dropout(placeholder(), rate=0.5, seed=1)))
    assert "RandomUniform" in opaque_kinds(graph)
    assert evaluate(graph, {"x": X})["y"].shape == (2, 3)
