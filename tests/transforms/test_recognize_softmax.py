"""Written-out softmaxes become one op."""

import numpy as np
import pytest

from qgraph.frontends.tf.opaque import TFSource
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import TensorType
from qgraph.transforms.recognize_softmax import RecognizeSoftmax
from tests.helpers.evaluate import random_feeds, reasons, run_pass
from tests.helpers.graphs import ops


def written_out(*, keepdims=True, shifted=True, form="div", axis=-1, shape=(None, 3, 8)) -> Graph:
    g = Graph("net")
    x = g.input("x", "float64", shape)
    kept = tuple(-1 if s is None else s for s in (*shape[:-1], 1))

    def reduced(op, value):
        made = g.add(op, value, attrs={"axes": (axis,), "keepdims": keepdims})
        return made if keepdims else g.add("reshape", made, attrs={"shape": kept})

    e = g.add("exp", g.add("sub", x, reduced("reduce_max", x)) if shifted else x, name="e")
    total = reduced("sum", e)
    if form == "div":
        y = g.add("div", e, total, name="y")
    else:
        y = g.add("mul", g.add("reciprocal", total), e, name="y")
    g.outputs["y"] = y
    return g


@pytest.mark.parametrize("form", ["div", "mul"])
@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("shape", [(None, 3, 8), (2, 8), (None, 8)])
def test_it_is_recognized(form, shifted, keepdims, shape):
    g = written_out(form=form, shifted=shifted, keepdims=keepdims, shape=shape)
    feeds = random_feeds(g)
    expected = evaluate(g, feeds)["y"]
    run_pass(RecognizeSoftmax(), g)
    assert g.nodes["y"].op == "softmax" and g.nodes["y"].inputs == ("x",)
    np.testing.assert_allclose(evaluate(g, feeds)["y"], expected, rtol=1e-12)


def test_what_looks_like_one_and_is_not():
    other_axis = written_out(axis=1)
    inverted = written_out()
    y = inverted.nodes["y"]
    inverted.replace(Node("y", "div", y.inputs[::-1]))
    foreign = written_out()
    e = foreign.add("exp", foreign.add("neg", "x"))
    foreign.replace(Node("y", "div", (e, foreign.nodes["y"].inputs[1])))
    for g in (other_axis, inverted, foreign):
        run_pass(RecognizeSoftmax(), g)
        assert "softmax" not in ops(g)


def test_the_largest_element_of_another_tensor_is_kept():
    g = written_out()
    shift = g.add(
        "reduce_max", g.add("neg", "x"), name="m", attrs={"axes": (-1,), "keepdims": True}
    )
    s = g.nodes["e"].inputs[0]
    g.replace(Node(s, "sub", ("x", shift)))
    run_pass(RecognizeSoftmax(), g)
    assert g.nodes["y"].op == "softmax" and g.nodes["y"].inputs == (s,)


def test_control_edges_are_refused():
    g = written_out()
    y = g.nodes["y"]
    g.replace(Node("y", "div", y.inputs, control=("x",)))
    trace = run_pass(RecognizeSoftmax(), g)
    assert reasons(trace) == [("y", "it has control edges")]


def log_of(*, keepdims=True, shifted=True, axis=-1, sign="sub") -> Graph:
    g = Graph("net")
    x = g.input("x", "float64", (None, 3, 8))

    def reduced(op, value):
        return g.add(op, value, attrs={"axes": (axis,), "keepdims": True})

    if shifted:
        x = g.add("sub", x, reduced("reduce_max", x), name="shifted")
    total = g.add("sum", g.add("exp", x), attrs={"axes": (axis,), "keepdims": keepdims})
    log = g.add("log", total)
    log = log if keepdims else g.add("expand_dims", log, attrs={"axis": 2})
    g.outputs["y"] = g.add(sign, x, log, name="y")
    return g


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("keepdims", [True, False])
def test_logarithms_are_recognized(shifted, keepdims):
    g = log_of(keepdims=keepdims, shifted=shifted)
    run_pass(RecognizeSoftmax(), g)
    assert ops(g) == ["input", "log_softmax"]


def test_logarithm_of_a_softmax_is_recognized():
    g = written_out()
    g.outputs["y"] = g.add("log", "y", name="l")
    run_pass(RecognizeSoftmax(), g)
    assert ops(g) == ["input", "log_softmax"]


def test_other_logarithms_are_kept():
    for g in (log_of(axis=1), log_of(sign="add")):
        run_pass(RecognizeSoftmax(), g)
        assert "log_softmax" not in ops(g)
    g = Graph("net")
    over_rows = g.add("softmax", g.input("x", "float64", (2, 3, 8)), attrs={"axis": 1})
    g.outputs["y"] = g.add("log", over_rows)
    run_pass(RecognizeSoftmax(), g)
    assert ops(g) == ["input", "softmax", "log"]


SEEN = np.tril(np.ones((3, 8), bool))


def masked(kind: str, number: float = -1e9) -> Graph:
    """Scores of which some are replaced, in several spellings."""
    g = Graph("net")
    x = g.input("x", "float32", (None, 3, 8))
    far = g.const(np.float32(number), "far")
    condition, branches = g.const(SEEN if kind != "inverted" else ~SEEN, "seen"), (x, far)
    if kind in ("add", "sub"):  # as in `Attention` of Keras 3
        branches = (x, g.add(kind, x, far if kind == "add" else g.const(np.float32(-number))))
    if kind == "joined":  # as in Keras 3
        sizes = g.const(np.array([1, 3, 8]))
        types = (TensorType("bool", (1, 3, 8)),)
        attrs = {"kind": "Fill", "types": types, "source": TFSource("fill", b"", b"", ())}
        ones = g.add("opaque", sizes, g.const(np.True_), attrs=attrs)
        condition = g.add("logical_and", ones, condition)
    if kind == "inverted":
        branches = branches[::-1]
    y = g.add("select", condition, *branches, name="s")
    g.outputs["y"] = g.add("softmax", y, attrs={"axis": -1})
    return g


@pytest.mark.parametrize("kind", ["plain", "inverted", "joined", "add", "sub"])
@pytest.mark.parametrize("number", [-1e4, -np.inf])
def test_a_select_before_a_softmax_is_a_mask(kind, number):
    g = masked(kind, number)
    RecognizeSoftmax().run(g)
    assert g.nodes["s"].op == "add"
    (mask,) = (m for v in g.nodes["s"].inputs if (m := g.constant(v)) is not None)
    np.testing.assert_array_equal(mask == 0, SEEN)
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
    wanted = np.where(SEEN, np.exp(x), 0)
    found = evaluate(g, {"x": x})["y"]
    np.testing.assert_allclose(found, wanted / wanted.sum(-1, keepdims=True), rtol=1e-5)


def test_other_selects_are_kept():
    g = masked("plain", -1.0)
    RecognizeSoftmax().run(g)
    assert g.nodes["s"].op == "select"
    g = masked("plain")
    g.outputs["z"] = "s"  # its numbers are used for something else
    RecognizeSoftmax().run(g)
    assert g.nodes["s"].op == "select"


def test_a_mask_with_a_bias_is_two_addends():
    g = Graph("net")
    x = g.input("x", "float32", (2, 3, 3))
    addend = np.triu(np.full((3, 3), -1e4, np.float32), 1) + np.eye(3, dtype=np.float32)
    y = g.add("add", g.const(addend, "c"), x, name="a")
    g.outputs["y"] = g.add("softmax", y, attrs={"axis": -1})
    run_pass(RecognizeSoftmax(), g)
    assert ops(g) == ["input", "add", "add", "softmax"]
    np.testing.assert_array_equal(g.constant("a/bias"), np.eye(3))
    assert set(np.unique(g.constant("a/mask"))) == {0, -(2.0**100)}
