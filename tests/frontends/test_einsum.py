"""Einsums become transposes, reshapes and products: each is compared with numpy's."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from qgraph.errors import GraphError
from qgraph.frontends import load_graph_def
from qgraph.frontends.einsum import Equation
from qgraph.interpret import evaluate
from tests.helpers.graphs import opaque_kinds
from tests.helpers.onnx_graphs import imported, model_of
from tests.helpers.tf_graphs import assert_same_as_tf, graph_def_of, v1

MOVES = {"transpose", "reshape"}
ATTENTION = {
    "abc,cde->abde": (1, {"matmul"}),  # the projection to heads
    "aecd,abcd->acbe": (None, {"batch_matmul"}),  # scores
    "acbe,aecd->abcd": (None, {"batch_matmul"}),  # weighted sums
    "abcd,cde->abe": (1, {"matmul"}),  # the projection of heads
    "cd,abc->abd": (0, {"matmul"}),
    "bhd,hde->bhe": (1, {"batch_matmul"}),  # weights for each head
    "bij,j->bij": (1, {"mul"}),
    "bi,bi->b": (None, {"batch_matmul"}),
    "ij->ji": (None, set()),
    "...i->...": (None, {"sum"}),
}
SIZES = dict(zip("abcdefhij", (2, 3, 4, 5, 1, 3, 2, 4, 3), strict=True))


def arrays(equation, sizes, ellipsis=(), seed=0):
    """Random small integers for each operand, so that float sums are exact."""
    rng = np.random.default_rng(seed)
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    shapes = [shape_of(term, sizes, ellipsis) for term in terms]
    return [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]


def shape_of(term, sizes, ellipsis):
    before, dots, after = term.partition("...")
    dims = [sizes[c] for c in before], list(ellipsis) if dots else [], [sizes[c] for c in after]
    return [size for part in dims for size in part]


def from_onnx(equation, operands, shapes, constant=None):
    """The graph of an ONNX einsum; operand `constant` is a constant."""
    names = [f"x{i}" for i in range(len(operands))]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    inputs = {
        name: shape
        for i, (name, shape) in enumerate(zip(names, shapes, strict=True))
        if i != constant
    }
    constants = {} if constant is None else {names[constant]: operands[constant]}
    return imported(model_of([node], inputs, constants=constants))


def from_tensorflow(equation, operands, shapes, constant=None):
    def build():
        values = [
            tf.constant(array) if i == constant else v1.placeholder("float32", shape, f"x{i}")
            for i, (array, shape) in enumerate(zip(operands, shapes, strict=True))
        ]
        return tf.raw_ops.Einsum(inputs=values, equation=equation)

    return load_graph_def(graph_def_of(build))


DOORS = {"ONNX": from_onnx, "TensorFlow": from_tensorflow}


def check(graph, equation, operands):
    """Compare a graph with numpy; the graph may not be opaque."""
    assert not opaque_kinds(graph)
    feeds = {f"x{i}": array for i, array in enumerate(operands) if f"x{i}" in graph.inputs}
    (found,) = evaluate(graph, feeds).values()
    np.testing.assert_array_equal(found, np.einsum(equation, *operands))
    declared = graph.types[next(iter(graph.outputs.values()))].shape
    assert all(d in (None, size) for d, size in zip(declared, found.shape, strict=True))


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("equation", ATTENTION)
def test_forms_of_products(equation, door, is_open):
    """The batch, the first axis of the result, has a known or an open size."""
    constant, products = ATTENTION[equation]
    terms, _, result = equation.partition("->")
    operands = arrays(equation, SIZES, (2, 3))
    sizes, ellipsis = ({**SIZES, result[0]: None}, (None, 3)) if is_open else (SIZES, (2, 3))
    shapes = [shape_of(term, sizes, ellipsis) for term in terms.split(",")]
    graph = DOORS[door](equation, operands, shapes, constant)
    check(graph, equation, operands)
    ops = {n.op for n in graph.nodes.values()} - {"input", "const", "identity"}
    assert ops - MOVES == products
    made = graph.types[next(iter(graph.outputs.values()))].shape
    assert made.count(None) == is_open


@st.composite
def equations(draw):
    """An equation of one or two operands, the sizes of its labels, and one that is open."""
    letters = "abcdeZ"
    sizes = {c: draw(st.integers(1, 3)) for c in letters}
    count = draw(st.integers(1, 2))
    terms = [
        "".join(draw(st.permutations(letters)))[: draw(st.integers(0, 4))] for _ in range(count)
    ]
    ellipsis = draw(st.lists(st.integers(1, 3), max_size=2))
    dotted = draw(st.booleans())
    if dotted:
        at = [draw(st.integers(0, len(term))) for term in terms]
        some = draw(st.integers(0, count))  # the operand without an ellipsis, if there is one
        terms = [
            t if i == some and count > 1 else f"{t[:k]}...{t[k:]}"
            for i, (t, k) in enumerate(zip(terms, at, strict=True))
        ]
    equation = ",".join(terms)
    if draw(st.booleans()):
        used = sorted(set("".join(terms)) - {"."})
        kept = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
        k = draw(st.integers(0, len(kept)))
        equation += "->" + "".join([*kept[:k], *(["..."] if dotted else []), *kept[k:]])
    return equation, sizes, ellipsis, draw(st.sampled_from(letters))


@given(equations(), st.sampled_from([None, 0, 1]))
@settings(max_examples=150, deadline=None)
def test_random_equations(drawn, constant):
    equation, sizes, ellipsis, opened = drawn
    operands = arrays(equation, sizes, ellipsis)
    constant = constant if len(operands) == 2 else None
    terms = equation.partition("->")[0].split(",")
    shapes = [shape_of(term, {**sizes, opened: None}, ellipsis) for term in terms]
    check(from_onnx(equation, operands, shapes, constant), equation, operands)


def test_sizes_of_1_repeat_along_batch_axes():
    operands = [np.ones((1, 2, 3), np.float32), np.arange(24, dtype=np.float32).reshape(4, 3, 2)]
    for equation in ("bij,bjk->bik", "...ij,...jk->...ik", "bij,bji->bij"):
        check(from_onnx(equation, operands, [a.shape for a in operands]), equation, operands)


@pytest.mark.parametrize("equation", ["ii->i", "ij,jk,kl->il", "ij,jk->ik"])
def test_what_has_no_plan_stays_opaque(equation):
    """Diagonals, three operands, and a sum along which one operand repeats."""
    shape = {"ij,jk->ik": (3, 1)}.get(equation, (3, 3))
    operands = [np.ones(shape, np.float32)] * (equation.count(",") + 1)
    graph = from_onnx(equation, operands, [a.shape for a in operands])
    assert opaque_kinds(graph) == ["Einsum"]


def test_two_open_sizes_in_one_axis_stay_opaque():
    operands = [np.ones((2, 3, 4), np.float32), np.ones((4, 5, 2), np.float32)]
    graph = from_onnx("abc,cde->abde", operands, [(None, None, 4), (4, 5, 2)], 1)
    assert opaque_kinds(graph) == ["Einsum"]


MALFORMED = {
    "ij,jk->ik": "has 2 operands, found 1",
    "ijk->i": "`ijk` in equation `ijk->i` does not fit its operand",
    "i1->i": "`i1` in equation `i1->i` does not fit its operand",
    "ij->ik": "must have labels of its operands",
    "ij->ii": "must have labels of its operands",
    "i...->i": "needs the ellipsis of its operands",
}


@pytest.mark.parametrize("equation", MALFORMED)
def test_malformed_equations_are_refused(equation):
    with pytest.raises(GraphError, match=f"this `Einsum` is malformed: .*{MALFORMED[equation]}"):
        from_onnx(equation, [np.ones((2, 2), np.float32)], [(2, 2)])


def test_sizes_that_differ_are_refused():
    operands = [np.ones((2, 3), np.float32), np.ones((4, 2), np.float32)]
    with pytest.raises(GraphError, match=r"sizes \[3, 4\] of label `j` do not fit together"):
        from_onnx("ij,jk->ik", operands, [a.shape for a in operands])


WEIGHTS = np.arange(24, dtype=np.float32)
COMPUTED = {
    "Einsum": lambda x, w: tf.raw_ops.Einsum(inputs=[x, w], equation="abc,cd->abd"),
    "BatchMatMulV2": lambda x, w: tf.raw_ops.BatchMatMulV2(x=x, y=w),
}


@pytest.mark.parametrize("op", COMPUTED)
def test_weights_that_are_computed_belong_to_a_layer(op):
    """Keras 3 reshapes the weights of a dense layer in the graph."""

    def build():
        x = v1.placeholder("float32", (None, 3, 4), "x")
        return COMPUTED[op](x, tf.reshape(tf.constant(WEIGHTS), (4, 6)))

    graph = assert_same_as_tf(graph_def_of(build))
    assert {"matmul", "batch_matmul"} & {n.op for n in graph.nodes.values()} == {"matmul"}


def test_products_of_two_activations_of_tensorflow():
    def build():
        x = v1.placeholder("float32", (None, 3, 4), "x")
        raw = tf.raw_ops.BatchMatMulV2
        return [raw(x=x, y=x, adj_y=True), raw(x=x, y=x, adj_x=True), raw(x=x[0], y=x, adj_y=True)]

    graph = assert_same_as_tf(graph_def_of(build))
    assert [n.op for n in graph.topological()].count("batch_matmul") == 3
    assert not opaque_kinds(graph)


def test_implicit_results_are_sorted():
    assert Equation.parse("b...a,aC", (4, 2)) == Equation(
        (("b", "1", "0", "a"), ("a", "C")), ("1", "0", "C", "b")
    )
