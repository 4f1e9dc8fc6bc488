"""Written-out softmaxes become one op."""

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph, Node
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
