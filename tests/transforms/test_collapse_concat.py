import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.transforms.collapse_concat import CollapseConcat
from tests.helpers.evaluate import reasons, run_pass


def net():
    g = Graph("net")
    return g, [g.input(name, "float64", (2, 3)) for name in "abc"]


def concat(g, *values, axis=-1, name="concat"):
    return g.add("concat", *values, name=name, attrs={"axis": axis})


def test_golden():
    g, (a, b, c) = net()
    inner = concat(g, b, c, axis=1, name="inner")
    g.outputs["y"] = concat(g, a, inner, g.const(np.ones((2, 1)), "one"), name="outer")
    run_pass(CollapseConcat(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %a = input {type=float64[2,3]}\n"
        "  %b = input {type=float64[2,3]}\n"
        "  %c = input {type=float64[2,3]}\n"
        "  %one = const {value=float64[2,1]:[1.0,1.0]}\n"
        "  %outer = concat(%a, %b, %c, %one) {axis=-1} : float64[2,10]\n"
        '  return "y" = %outer\n'
        "}\n"
    )


def test_deep_nesting_and_a_repeated_member():
    g, (a, b, c) = net()
    inner = concat(g, concat(g, a, b), c)
    g.outputs["y"] = concat(g, inner, a, inner, name="outer")
    run_pass(CollapseConcat(), g)
    assert g.nodes["outer"].inputs == ("a", "b", "c", "a", "a", "b", "c")


def test_another_axis_is_left_alone():
    g, (a, b, c) = net()
    g.outputs["y"] = concat(g, concat(g, a, b, axis=0), concat(g, c, c, axis=0), axis=1)
    trace = run_pass(CollapseConcat(), g)
    assert not trace.rewrites and not trace.refusals


def test_a_member_that_is_consumed_elsewhere_is_refused():
    g, (a, b, c) = net()
    inner = concat(g, a, b, name="inner")
    g.outputs["z"] = g.add("relu", inner, name="r")
    g.outputs["y"] = concat(g, inner, concat(g, b, c, name="free"), name="outer")
    trace = run_pass(CollapseConcat(), g)
    assert g.nodes["outer"].inputs == ("inner", "b", "c")
    assert reasons(trace) == [
        ("outer", "cannot take the members of an inner concat: `inner` is also used by `r`")
    ]


def test_a_member_that_is_an_output_is_refused():
    g, (a, b, c) = net()
    inner = g.outputs["inner"] = concat(g, a, b, name="inner")
    g.outputs["y"] = concat(g, inner, c, name="outer")
    [(_, reason)] = reasons(run_pass(CollapseConcat(), g))
    assert reason.endswith("`inner` is also used by output `inner`")
