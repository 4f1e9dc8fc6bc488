import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.printing import print_graph
from qgraph.transforms.fold_constants import FoldConstants
from tests.helpers.evaluate import reasons, run_pass


def test_a_chain_of_constants_becomes_one_that_keeps_the_name():
    g = Graph("net")
    x = g.input("x", "float64", (2, 2))
    c = g.add("add", g.const(np.array([1.0, 3.0]), "a"), g.const(1.0, "b"), name="c")
    g.outputs["y"] = g.add(
        "mul", x, g.add("rsqrt", g.add("mul", c, c, name="d"), name="e"), name="y"
    )
    run_pass(FoldConstants(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[2,2]}\n"
        "  %e = const {value=float64[2]:[0.5,0.25]}\n"
        "  %y = mul(%x, %e) : float64[2,2]\n"
        '  return "y" = %y\n'
        "}\n"
    )


def test_float32_is_computed_in_float64_and_rounded_once():
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32) ** 2
    g = Graph("net")
    g.outputs["y"] = g.add("rsqrt", g.const(values, "a"), name="y")
    FoldConstants().run(g)
    found = g.constant("y")
    assert found.dtype == np.float32
    assert np.array_equal(found, (1 / np.sqrt(values.astype(np.float64))).astype(np.float32))
    assert not np.array_equal(found, 1 / np.sqrt(values))  # what float32 would have given


def test_shapes_and_dtypes_survive():
    g = Graph("net")
    g.outputs["t"] = g.add(
        "transpose", g.const(np.arange(6).reshape(2, 3), "a"), attrs={"perm": (1, 0)}
    )
    g.outputs["s"] = g.add("sqrt", g.const(np.float32(4), "b"))
    g.outputs["c"] = g.add("cast", g.const(np.array([1.5, 2.5]), "c"), attrs={"dtype": "int32"})
    types = {public: g.types[value] for public, value in g.outputs.items()}
    run_pass(FoldConstants(), g)
    assert {n.op for n in g.nodes.values()} == {"const"}
    assert {public: g.types[value] for public, value in g.outputs.items()} == types


def test_a_constant_that_grows_past_the_limit_is_refused():
    g = Graph("net")
    a, b = g.const(np.ones((1, 2048)), "a"), g.const(np.ones((2048, 1)), "b")
    g.outputs["y"] = g.add("add", a, b, name="y")
    trace = run_pass(FoldConstants(), g)
    assert g.nodes["y"].op == "add"
    assert reasons(trace) == [("y", "the result takes 33554432 bytes, its inputs only 32768")]


def test_control_edges_are_refused():
    g = Graph("net")
    a = g.const(1.0, "a")
    g.outputs["y"] = g.insert(Node("y", "neg", (a,), control=(a,)))
    trace = run_pass(FoldConstants(), g)
    assert g.nodes["y"].op == "neg" and reasons(trace) == [("y", "it has control edges")]
