"""Patterns: what they match and what they bind."""

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.types import TensorType
from qgraph.rewrite.pattern import Const, Op, Var, match

X, Y = Var("x"), Var("y")


def start() -> Graph:
    g = Graph("net")
    g.input("a", "float32", (None, 4))
    g.input("b", "float32", (None, 4))
    g.const(np.float32(3), "three")
    return g


@pytest.mark.parametrize("op", ["add", "mul", "maximum", "minimum"])
def test_commutative_ops_match_in_both_orders(op):
    g = start()
    s = g.add("sigmoid", "a", name="s")
    for inputs in (("a", s), (s, "a")):
        y = g.add(op, *inputs)
        assert match(g, y, Op(op, X, Op("sigmoid", X))) == {"x": "a"}
        assert match(g, y, Op(op, Op("sigmoid", X), X)) == {"x": "a"}


def test_order_counts_elsewhere():
    g = start()
    y = g.add("sub", "three", "a")
    assert match(g, y, Op("sub", Const("c"), X)) == {"c": "three", "x": "a"}
    assert match(g, y, Op("sub", X, Const("c"))) is None


def test_a_variable_that_occurs_twice_is_one_value():
    g = start()
    s = g.add("sigmoid", "b")
    assert match(g, g.add("mul", "a", s), Op("mul", X, Op("sigmoid", X))) is None
    assert match(g, g.add("add", "a", "a"), Op("add", X, X)) == {"x": "a"}
    assert match(g, g.add("add", "a", "b"), Op("add", X, X)) is None
    assert match(g, g.add("add", "a", "b"), Op("add", X, Y)) == {"x": "a", "y": "b"}


def test_a_choice_made_inside_is_taken_back():
    """The first order of the inner op binds x to a, which only the second makes right."""
    g = start()
    inner = g.add("add", "a", "b", name="inner")
    y = g.add("sub", inner, "b")
    assert match(g, y, Op("sub", Op("add", X, Y), X)) == {"x": "b", "y": "a"}


@pytest.mark.parametrize(
    ("value", "equals", "found"),
    [
        (3.0, 3.0, True),
        (3.0, None, True),
        (3.0, 2.0, False),
        (np.full(4, 3.0), 3.0, True),
        ([3.0, 3.1], 3.0, False),
        (np.float32(0.1), 0.1, True),
        (3, 3.0, True),
        (np.zeros(0), 0.0, False),
        (np.array(["3"]), 3.0, False),
    ],
)
def test_constants(value, equals, found):
    g = start()
    c = g.const(value, "c")
    assert match(g, c, Const("c", equals)) == ({"c": "c"} if found else None)
    assert match(g, "a", Const("c", equals)) is None


def test_several_ops_and_names_for_them():
    g = start()
    y = g.add("relu6", g.add("neg", "a", name="n"))
    pattern = Op(("relu", "relu6"), Op("neg", X, bind="inner"), bind="outer")
    assert match(g, y, pattern) == {"x": "a", "inner": "n", "outer": "relu6"}
    assert match(g, g.add("tanh", "n"), pattern) is None


def test_arity_and_first_outputs_only():
    g = start()
    y = g.add("concat", "a", "b", "a", attrs={"axis": 0})
    assert match(g, y, Op("concat", X, Y)) is None
    types = (TensorType("float32", None),) * 2
    o = g.add("opaque", attrs={"kind": "K", "types": types, "source": None}, outputs=2)
    assert match(g, o, Op("opaque")) == {} and match(g, f"{o}:1", Op("opaque")) is None


def test_a_number_that_integers_cannot_hold_matches_none() -> None:
    g = start()
    x, zero = g.input("i", "int32", (2,)), g.const(np.zeros(2, np.int32), "zero")
    y = g.add("mul", x, zero)
    assert match(g, y, Op("mul", X, Const(equals=0))) == {"x": "i"}
    assert match(g, y, Op("mul", X, Const(equals=0.5))) is None
