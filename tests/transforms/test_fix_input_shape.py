import pytest

from qgraph.errors import UsageError
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.passes import PassManager
from qgraph.rewrite.trace import Trace
from qgraph.transforms.fix_input_shape import FixInputShape
from tests.helpers.evaluate import reasons


def net() -> Graph:
    g = Graph("net")
    x = g.input("x", "float64", (None, None, None, 3))
    g.outputs["y"] = g.add("relu", g.add("identity", x, name="id"), name="r")
    return g


def test_types_follow_the_new_shape():
    g, trace = net(), Trace()
    PassManager([FixInputShape((("x", (None, 8, 4, 3)),))]).run(g, trace)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[?,8,4,3]}\n"
        "  %id = identity(%x) : float64[?,8,4,3]\n"
        "  %r = relu(%id) : float64[?,8,4,3]\n"
        '  return "y" = %r\n'
        "}\n"
    )
    assert [(r.node, r.after) for r in trace.rewrites] == [("x", "%x : float64[?,8,4,3]")]
    assert not trace.refusals


def test_an_unknown_dimension_is_refused_and_an_unknown_batch_is_not():
    trace = Trace()
    FixInputShape().run(net(), trace)
    [(node, reason)] = reasons(trace)
    assert node == "x" and "float64[?,?,?,3]" in reason and "--input-shape" in reason


@pytest.mark.parametrize("shape", [(None, None, 4, 3), (None, 8, None, 3), (None, 8, 4, None)])
def test_each_unknown_dimension_behind_the_batch_is_refused(shape):
    g, trace = Graph("net"), Trace()
    g.outputs["y"] = g.add("relu", g.input("x", "float64", shape))
    FixInputShape().run(g, trace)
    assert [node for node, _ in reasons(trace)] == ["x"]


@pytest.mark.parametrize("shape", [(None, 8, 8, 4), (8, 8, 3), (1, 2)])
def test_a_shape_that_does_not_fit_is_an_error(shape):
    with pytest.raises(UsageError, match="does not fit"):
        FixInputShape((("x", shape),)).run(net())


def test_an_unknown_input_is_an_error_that_lists_the_inputs():
    with pytest.raises(UsageError, match="'x'"):
        FixInputShape((("image", (1, 8, 8, 3)),)).run(net())
