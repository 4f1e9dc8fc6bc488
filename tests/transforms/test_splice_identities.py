import numpy as np
import pytest

from qgraph.ir.graph import Graph, Node
from qgraph.ir.printing import print_graph
from qgraph.transforms.splice_identities import SpliceIdentities
from tests.helpers.evaluate import reasons, run_pass
from tests.helpers.graphs import ops


def test_everything_that_changes_nothing_goes():
    g = Graph("net")
    x = g.input("x", "float64", (None, 4, 4, 2))
    y = g.add("identity", x, name="read")
    y = g.add("transpose", y, attrs={"perm": (0, 1, 2, 3)})
    y = g.add("reshape", y, attrs={"shape": (-1, 4, 4, 2)})
    y = g.add("pad", y, attrs={"paddings": ((0, 0),) * 4})
    y = g.add("cast", y, attrs={"dtype": "float64"})
    y = g.add("squeeze", y, attrs={"axes": ()})
    y = g.add(
        "slice", y, attrs={"begin": (0, 0, None, 0), "end": (None, 4, 9, 2), "strides": (1,) * 4}
    )
    y = g.add("concat", y, attrs={"axis": 3})
    g.outputs["y"] = g.add("relu", y, name="y")
    run_pass(SpliceIdentities(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[?,4,4,2]}\n"
        "  %y = relu(%x) : float64[?,4,4,2]\n"
        '  return "y" = %y\n'
        "}\n"
    )


def test_an_axis_that_is_added_and_removed():
    """As in the last output of a recurrent layer that keeps only that one."""
    g = Graph("net")
    x = g.input("x", "float64", (None, 4))
    y = g.add("expand_dims", x, attrs={"axis": 0})
    attrs = {"begin": (-1, 0, 0), "end": (None,) * 3, "strides": (1,) * 3}
    y = g.add("squeeze", g.add("slice", y, attrs=attrs), attrs={"axes": (0,)})
    other = g.add("squeeze", g.add("expand_dims", x, attrs={"axis": 1}), attrs={"axes": (1,)})
    g.outputs["y"] = g.add("add", y, other, name="y")
    run_pass(SpliceIdentities(), g)
    assert ops(g) == ["input", "add"]


def test_another_axis_or_element_is_kept():
    g = Graph("net")
    x = g.input("x", "float64", (1, 2, 3))
    g.outputs["a"] = g.add(
        "squeeze", g.add("expand_dims", x, attrs={"axis": 3}), attrs={"axes": (0,)}
    )
    attrs = {"begin": (0, -1, 0), "end": (None,) * 3, "strides": (1,) * 3}
    g.outputs["b"] = g.add("slice", x, attrs=attrs)
    assert not run_pass(SpliceIdentities(), g).rewrites


def test_nodes_that_do_something_stay():
    g = Graph("net")
    x = g.input("x", "float64", (None, 4, 4, 2))
    g.outputs["a"] = g.add("transpose", x, attrs={"perm": (0, 2, 1, 3)})
    g.outputs["b"] = g.add("reshape", x, attrs={"shape": (-1, 4, 2, 4)})
    g.outputs["c"] = g.add("reshape", x, attrs={"shape": (2, -1, 4, 2)})
    g.outputs["d"] = g.add(
        "slice", x, attrs={"begin": (1, 0, 0, 0), "end": (None,) * 4, "strides": (1,) * 4}
    )
    g.outputs["e"] = g.add(
        "slice", x, attrs={"begin": (0,) * 4, "end": (None,) * 4, "strides": (1, -1, 1, 1)}
    )
    assert not run_pass(SpliceIdentities(), g).rewrites


def test_an_input_may_become_an_output():
    g = Graph("net")
    g.outputs["y"] = g.add("identity", g.input("x", "float64", (2,)))
    run_pass(SpliceIdentities(), g)
    assert g.outputs == {"y": "x"}


def test_control_edges_are_refused():
    g = Graph("net")
    x = g.input("x", "float64", (2,))
    held = g.insert(Node("held", "identity", (x,), control=(g.const(np.float64(0), "c"),)))
    holds = g.add("identity", x, name="holds")
    g.outputs["y"] = g.insert(Node("y", "add", (held, holds), control=(holds,)))
    trace = run_pass(SpliceIdentities(), g)
    assert reasons(trace) == [("held", "it has control edges"), ("holds", "it has control edges")]


@pytest.mark.parametrize(
    ("op", "value"),
    [("add", 0), ("sub", 0), ("mul", 1), ("div", 1), ("maximum", -np.inf), ("minimum", np.inf)],
)
def test_neutral_elements_go(op, value):
    g = Graph("net")
    x = g.input("x", "float64", (4, 3))
    g.outputs["y"] = g.add(op, x, g.const(np.full((1, 3), float(value)), "c"))
    run_pass(SpliceIdentities(), g)
    assert g.outputs == {"y": "x"}


def test_what_looks_neutral_and_is_not():
    g = Graph("net")
    x = g.input("x", "float64", (1, 3))
    g.outputs["wider"] = g.add("mul", x, g.const(np.ones((4, 1)), "c"))
    g.outputs["negative"] = g.add("sub", g.const(0.0, "zero"), x)
    g.outputs["inverse"] = g.add("div", g.const(1.0, "one"), x)
    g.outputs["lowest"] = g.add("maximum", x, g.const(np.finfo(np.float64).min, "lowest_number"))
    g.outputs["partly"] = g.add("mul", x, g.const(np.array([1.0, 1.0, 2.0]), "d"))
    assert not run_pass(SpliceIdentities(), g).rewrites


def test_a_neutral_element_with_control_edges_is_refused():
    g = Graph("net")
    x, one = g.input("x", "float64", (2,)), g.const(1.0, "one")
    g.outputs["y"] = g.insert(Node("y", "mul", (x, one), control=(one,)))
    trace = run_pass(SpliceIdentities(), g)
    assert reasons(trace) == [("y", "it has control edges")]


def test_members_without_elements_leave_a_concat():
    g = Graph("net")
    a, b = (g.input(name, "float32", (None, 3)) for name in "ab")
    none = g.add("slice", a, attrs={"begin": (None, 3), "end": (None, 3), "strides": (1, 1)})
    g.outputs["y"] = g.add("concat", none, a, none, b, name="y", attrs={"axis": -1})
    g.outputs["z"] = g.add("concat", none, b, name="z", attrs={"axis": 1})
    g.outputs["e"] = g.add("concat", none, none, name="e", attrs={"axis": 1})
    run_pass(SpliceIdentities(), g)
    assert g.nodes["y"].inputs == ("a", "b")
    assert g.outputs["z"] == "b"
    assert g.nodes["e"].inputs == (none, none)
