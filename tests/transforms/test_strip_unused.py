import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.transforms.strip_unused import StripUnused
from tests.helpers.evaluate import reasons, run_pass


def test_dead_chains_go_and_control_inputs_stay():
    g = Graph("net")
    x = g.input("x", "float64", (2, 3))
    g.add("relu", g.add("neg", x, name="dead_a"), name="dead_b")
    guard = g.const(np.float64(1), "guard")
    g.outputs["y"] = g.insert(Node("y", "relu", (x,), control=(guard,)))
    trace = run_pass(StripUnused(), g)
    assert sorted(g.nodes) == ["guard", "x", "y"]
    assert [r.node for r in trace.rewrites] == ["dead_b", "dead_a"]


def test_an_input_that_is_not_used_stays_and_is_named():
    g = Graph("net")
    x = g.input("x", "float64", (2, 3))
    g.input("keep_prob", "float64", ())
    g.outputs["y"] = x
    trace = run_pass(StripUnused(), g)
    assert g.inputs == ["x", "keep_prob"]
    assert reasons(trace) == [
        ("keep_prob", "no output needs this input; it stays in the signature")
    ]
