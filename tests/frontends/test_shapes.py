"""Shapes that the graph computes itself: known parts become attributes and constants."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from qgraph.errors import GraphError
from qgraph.frontends import load_graph_def
from qgraph.frontends.division import Quotient, divided, number_range
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.partial import Partial, elementwise, joint_shape
from qgraph.interpret import evaluate
from qgraph.ir.printing import print_graph
from tests.helpers.graphs import opaque_kinds
from tests.helpers.tf_graphs import assert_same_as_tf, graph_def_of, v1

raw = tf.raw_ops


def imported(build, **options):
    """The graph of `build(x)`, checked against TensorFlow; nothing but plain ops in it."""
    graph_def = graph_def_of(lambda: build(v1.placeholder("float32", (None, 4, 4, 8), "x")))
    graph = assert_same_as_tf(graph_def, **options)
    assert opaque_kinds(graph) == []
    return graph


def only(graph, op):
    (node,) = [n for n in graph.nodes.values() if n.op == op]
    return node


def test_unknown_batch_becomes_a_free_dimension():
    graph = imported(lambda x: tf.reshape(x, [tf.shape(x)[0], 128]))
    assert only(graph, "reshape").attrs["shape"] == (-1, 128)
    assert {n.op for n in graph.nodes.values()} == {"input", "reshape", "identity"}


def test_flatten_by_batch_and_minus_one():
    graph = imported(lambda x: tf.reshape(tf.nn.relu(x * 2), tf.stack([tf.shape(x)[0], -1])))
    assert only(graph, "reshape").attrs["shape"] == (-1, 128)


def test_flatten_after_a_sum_with_a_tensor_of_lower_rank():
    graph = imported(lambda x: tf.reshape(x + x[:, 0, 0, 0:1][:4], [tf.shape(x)[0], -1]), batch=4)
    assert only(graph, "reshape").attrs["shape"] == (-1, 128)


def test_flatten_after_convolution_and_pool():
    def build(x):
        y = tf.nn.conv2d(x, tf.ones((3, 3, 8, 2)), 1, "SAME")
        y = tf.concat([y, tf.nn.max_pool2d(y, 3, 1, "SAME")], 3)
        y = tf.pad(y, [[0, 0], [1, 1], [1, 1], [0, 0]])
        y = tf.transpose(tf.reshape(y, [-1, 36, 4]), [0, 2, 1])
        return tf.reshape(y[:, :, 1:], [tf.shape(x)[0], -1, 5])

    graph = imported(build)
    assert [n.attrs["shape"] for n in graph.topological() if n.op == "reshape"][-1] == (-1, 28, 5)


@pytest.mark.parametrize(
    ("divide", "factor", "size"),
    [
        (raw.FloorDiv, 2.0, 4),  # floor(5 / 2) * 2: not 5
        (raw.RealDiv, 2.0, 5),
        (raw.Div, 2.0, 5),
        (raw.FloorDiv, -2.0, 6),
        (raw.FloorDiv, 2, 4),
        (raw.Div, -2, 4),
    ],
)
def test_sizes_are_divided_as_tensorflow_divides(divide, factor, size):
    def build():
        x = v1.placeholder("float32", (2, 5, 7, 3), "x")
        height = tf.cast(tf.shape(x)[1], tf.constant(factor).dtype)
        height = divide(x=height, y=tf.constant(factor)) * tf.constant(factor)
        sizes = tf.stack([tf.cast(height, "int32"), 3])
        return tf.compat.v1.image.resize_nearest_neighbor(x, sizes)

    graph = assert_same_as_tf(graph_def_of(build))
    assert only(graph, "resize_nearest").attrs["size"] == (size, 3)


@pytest.mark.parametrize("kind", [*Quotient])
def test_quotients(kind):
    x, y = np.arange(-9, 10), np.array([[-4], [3]])
    plain = x / y
    rounded = {Quotient.PLAIN: plain, Quotient.FLOOR: np.floor(plain)}.get(kind, np.trunc(plain))
    floats = divided([Partial.known(v.astype("float32")) for v in (x, y)], kind)
    assert np.array_equal(floats.values, rounded.astype("float32"))
    whole = np.floor(plain) if kind is Quotient.FLOOR else np.trunc(plain)
    assert np.array_equal(divided([Partial.known(x), Partial.known(y)], kind).values, whole)
    assert divided([Partial.known(x), Partial.known(np.array(0))], kind) is None


@pytest.mark.parametrize("step", [0.0, float("nan"), 1e-9])
def test_ranges_without_an_end_are_not_known(step):
    assert number_range([Partial.known(np.float32(v)) for v in (0, 9, step)]) is None
    assert number_range([Partial.known(v) for v in (0, 9, 3)]).values.tolist() == [0, 3, 6]


def test_another_inputs_batch_is_not_taken_for_this_one():
    def build():
        x = v1.placeholder("float32", (None, 4), "x")
        other = v1.placeholder("float32", (None, 2), "other")
        return tf.reshape(x, [tf.shape(other)[0], -1])

    graph = load_graph_def(graph_def_of(build))
    assert "Reshape" in opaque_kinds(graph)
    feeds = {"x": np.ones((4, 4), "float32"), "other": np.ones((2, 2), "float32")}
    assert evaluate(graph, feeds)["y"].shape == (2, 8)


def test_another_unknown_axis_is_not_taken_for_the_batch():
    def build():
        x = v1.placeholder("float32", (None, None), "x")
        return tf.reshape(tf.matmul(x, tf.ones((2, 4))), [tf.shape(x)[1], -1])

    graph = load_graph_def(graph_def_of(build))
    assert evaluate(graph, {"x": np.ones((3, 2), "float32")})["y"].shape == (2, 6)


def test_batches_that_may_be_broadcast_are_kept_apart():
    def build():
        one = v1.placeholder("float32", (None, 2, 2), "one")
        many = v1.placeholder("float32", (None, 2, 2), "many")
        return tf.reshape(one + many, [tf.shape(one)[0], -1])

    graph = load_graph_def(graph_def_of(build))
    feeds = {"one": np.ones((1, 2, 2), "float32"), "many": np.ones((3, 2, 2), "float32")}
    assert evaluate(graph, feeds)["y"].shape == (1, 12)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: tf.space_to_batch(x, [2, 2], [[0, 0], [0, 0]]),
        lambda x: tf.concat([x, x], 0),
        lambda x: tf.pad(x, [[0, 2], [0, 0], [0, 0], [0, 0]]),
        lambda x: x[1:],
        lambda x: tf.reshape(x, [-1, 8]),
    ],
)
def test_changed_batch_is_not_taken_for_the_old_one(change):
    def build():
        x = v1.placeholder("float32", (None, 4, 4, 8), "x")
        y = change(x)
        return [tf.reshape(y, [tf.shape(y)[0], -1, 1]), tf.reshape(y, [tf.shape(x)[0], -1])]

    graph = assert_same_as_tf(graph_def_of(build))
    assert opaque_kinds(graph).count("Reshape") == 1


def test_tensor_of_unknown_rank_is_left_to_tensorflow():
    def build():
        x = v1.placeholder("float32", (None, 4), "x")
        y = tf.reshape(x, tf.cast(tf.stack([tf.reduce_sum(x) * 0 + 2, 4.0])[:], tf.int32))
        anything = tf.raw_ops.ParseTensor(serialized=tf.io.serialize_tensor(y), out_type=tf.float32)
        return raw.MatMul(a=anything, b=tf.ones((4, 3)))

    graph = assert_same_as_tf(graph_def_of(build))
    assert "MatMul" in opaque_kinds(graph)


def test_reshape_that_cannot_hold_names_its_node():
    with pytest.raises(GraphError, match=r"flat: reshape: .*cannot be reshaped"):
        load_graph_def(
            _with_static_reshape((2, 3), (2, 3)),
            input_shapes={"x": (2, 4)},
        )


def _with_static_reshape(shape, target):
    return graph_def_of(
        lambda: tf.reshape(v1.placeholder("float32", shape, "x"), target, name="flat")
    )


@pytest.mark.parametrize(
    "size",
    [
        lambda x: tf.shape(x)[1:3] * 2,
        lambda x: [tf.shape(x)[1] * 2, tf.shape(x)[2] + 3],
        lambda x: tf.cast(tf.cast(tf.shape(x)[1:3], tf.float32) * 1.5, tf.int32),
        lambda x: tf.gather(tf.shape(x), [2, 1]),
        lambda x: tf.maximum(tf.shape(x)[1:3] // 2, 3) - tf.minimum(1, tf.rank(x)),
        lambda x: tf.unstack(tf.shape(x))[1:3],
        lambda x: tf.fill([2], tf.size(x[0]) // 16),
        lambda x: tf.squeeze(tf.expand_dims(tf.range(2, 8, 3), 0), [0]),
        lambda x: tf.concat([[5], tf.math.reduce_prod(tf.shape(x)[1:3], keepdims=True)], 0),
        lambda x: tf.where(tf.shape(x)[1] > 3, [7, 7], [9, 9]),
        lambda x: tf.slice(tf.shape(x), [1], [2]) % 3 + 1,
        lambda x: (raw.TruncateDiv(x=7, y=-tf.shape(x)[1:2]) + 4) * [3, 4],
    ],
)
def test_size_computed_from_a_shape_is_constant(size):
    graph = imported(lambda x: raw.ResizeNearestNeighbor(images=x, size=size(x)), outputs=["y"])
    assert [n.op for n in graph.topological()] == ["input", "resize_nearest", "identity"]


def test_filled_tensors_are_constants():
    graph = imported(
        lambda x: [tf.fill([3, 2], 1.5) + tf.reduce_mean(x, [1, 2])[0, :2],
                   x[0] + tf.zeros_like(x[0]), x[0] * raw.OnesLike(x=x[0])]
    )  # fmt: skip
    assert {n.op for n in graph.nodes.values()} <= {
        "input", "const", "add", "mul", "mean", "slice", "squeeze", "identity",
    }  # fmt: skip


def test_shape_that_is_a_result_is_kept():
    graph = assert_same_as_tf(
        graph_def_of(lambda: tf.shape(v1.placeholder("float32", (None, 3), "x")))
    )
    assert opaque_kinds(graph) == ["Shape"]
    assert str(graph.types["y"]) == "int32[2]"


def test_float_arithmetic_of_tensors_is_left_to_a_pass():
    graph = imported(lambda x: x * (tf.constant([1.0] * 8) + tf.constant([2.0] * 8)))
    assert only(graph, "add").inputs == ("Const", "Const_1")


def test_strided_slice_with_all_masks_in_golden_form():
    graph_def = graph_def_of(
        lambda: v1.placeholder("float32", (None, 8, 8, 3), "x")[:, 2, ::2, tf.newaxis, -1:]
    )
    graph = load_graph_def(graph_def, outputs=["strided_slice"], name="g")
    assert print_graph(graph) == (
        'graph "g" {\n'
        "  %x = input {type=float32[?,8,8,3]}\n"
        "  %strided_slice/slice = slice(%x) {begin=(None, 2, None, -1),"
        " end=(None, 3, None, None), strides=(1, 1, 2, 1)} : float32[?,1,4,1]\n"
        "  %strided_slice/squeeze = squeeze(%strided_slice/slice) {axes=(1,)} : float32[?,4,1]\n"
        "  %strided_slice = expand_dims(%strided_slice/squeeze) {axis=2} : float32[?,4,1,1]\n"
        '  return "strided_slice" = %strided_slice\n'
        "}\n"
    )


MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


@settings(max_examples=60)
@given(data=st.data())
def test_strided_slices_are_tensorflows(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    n = data.draw(st.integers(1, len(shape) + 1))
    bounds = st.lists(st.integers(-5, 5), min_size=n, max_size=n)
    begin, end = data.draw(bounds), data.draw(bounds)
    strides = data.draw(st.lists(st.sampled_from([1, 2, -1, -2]), min_size=n, max_size=n))
    masks = {mask: data.draw(st.integers(0, 2**n - 1)) for mask in MASKS}
    masks["ellipsis_mask"] = data.draw(st.sampled_from([0, *(1 << i for i in range(n))]))

    def build():
        x = v1.placeholder("float32", shape, "x")
        return raw.StridedSlice(input=x, begin=begin, end=end, strides=strides, **masks)

    try:
        graph_def = graph_def_of(build)
    except ValueError:  # TensorFlow refuses this one
        assume(False)
    assert opaque_kinds(assert_same_as_tf(graph_def)) == []


def test_small_tensors_that_make_a_large_one_are_not_computed():
    """Each has 1,024 elements, the three of them together 2^30."""
    shapes = ((1024, 1, 1), (1024, 1), (1024,))
    parts = [Partial.known(np.arange(1024).reshape(shape)) for shape in shapes]
    assert joint_shape([parts[2], Partial.known(np.arange(1))]) == (1024,)
    for args in (parts, parts[1:]):
        with pytest.raises(Inexpressible):
            joint_shape(args)
        with pytest.raises(Inexpressible):
            elementwise(lambda *values: values[0], args)


@pytest.mark.parametrize("condition", [True, False])
def test_a_choice_of_known_values_is_broadcast(condition):
    def build(x):
        chosen = raw.SelectV2(condition=tf.constant(condition), t=tf.constant(3), e=tf.range(8))
        return x + tf.cast(chosen, "float32") * tf.cast(tf.size(chosen), "float32")

    imported(build)
