from dataclasses import dataclass

import numpy as np
import pytest

from qgraph.ir.graph import Graph, Node
from qgraph.ir.printing import print_graph
from qgraph.ir.types import TensorType
from qgraph.rewrite.trace import Trace
from qgraph.transforms.remove_training_nodes import RemoveTrainingNodes
from tests.helpers.evaluate import assert_same_function, reasons, run_pass


@dataclass
class Source:
    def run(self, inputs):
        raise AssertionError("nothing random may be run")

    def types(self, inputs, constants):
        return ()


def opaque(g: Graph, kind: str, *inputs: str, shape=(None, 4), dtype="float64") -> str:
    attrs = {"kind": kind, "types": (TensorType(dtype, shape),), "source": Source()}
    return g.add("opaque", *inputs, name=kind, attrs=attrs)


def net():
    g = Graph("net")
    return g, g.input("x", "float64", (None, 4)), g.const


def random(g: Graph, x: str) -> str:
    shape = opaque(g, "Shape", x, shape=(2,), dtype="int32")
    return opaque(g, "RandomUniform", shape)


def tf1(g, x, const, keep=None):
    """floor(keep + (random * (max - min) + min)), as TensorFlow 1.0 to 1.12 froze it."""
    keep = keep or const(0.7, "keep")
    span = g.add("sub", const(1.0, "max"), const(0.0, "min"))
    noise = g.add("add", g.add("mul", random(g, x), span), const(0.0, "min"))
    mask = g.add("floor", g.add("add", keep, noise))
    return g.add("mul", g.add("div", x, keep), mask, name="dropout")


def tf1_late(g, x, const):
    rate = const(0.3, "rate")
    scale = g.add("div", const(1.0, "one"), g.add("sub", const(1.0, "one"), rate))
    mask = g.add("cast", g.add("greater_equal", random(g, x), rate), attrs={"dtype": "float64"})
    return g.add("mul", g.add("mul", x, scale), mask, name="dropout")


def tf2(g, x, const, scale=1 / 0.75):
    mask = g.add("greater_equal", random(g, x), const(0.25, "rate"))
    scaled = g.add("mul", x, const(scale, "scale"))
    return g.add("select", mask, scaled, const(0.0, "zero"), name="dropout")


@pytest.mark.parametrize("form", [tf1, tf1_late, tf2])
def test_dropout_becomes_its_input(form):
    g, x, const = net()
    g.outputs["y"] = g.add("relu", form(g, g.add("neg", x, name="n"), const), name="y")
    trace_graph = g.copy()
    RemoveTrainingNodes().run(g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[?,4]}\n"
        "  %n = neg(%x) : float64[?,4]\n"
        "  %y = relu(%n) : float64[?,4]\n"
        '  return "y" = %y\n'
        "}\n"
    )
    assert len(trace_graph.nodes) > 8


@pytest.mark.parametrize("late", [False, True])
def test_a_keep_probability_that_is_fed(late):
    g, x, const = net()
    keep = g.input("keep_prob", "float64", None)
    if late:  # tf.compat.v1.nn.dropout(x, keep_prob=placeholder) in TensorFlow 2
        rate = g.add("sub", const(1.0), keep)
        scaled = g.add("div", x, g.add("sub", const(1.0), rate))
        mask = g.add("greater_equal", random(g, x), rate)
        g.outputs["y"] = g.add("select", mask, scaled, const(0.0, "zero"))
    else:
        g.outputs["y"] = tf1(g, x, const, keep)
    RemoveTrainingNodes().run(g)
    assert g.outputs == {"y": "x"} and g.inputs == ["x", "keep_prob"]


def test_two_probabilities_that_are_fed_may_differ():
    """The node that masks need not be the node that scales."""
    g, x, _ = net()
    keep, other = (g.input(name, "float64", ()) for name in ("keep", "other"))
    mask = g.add("floor", g.add("add", keep, random(g, x)))
    g.outputs["y"] = g.add("mul", g.add("div", x, other), mask, name="dropout")
    trace = Trace()
    RemoveTrainingNodes().run(g, trace)
    assert "dropout" in g.nodes and not trace.rewrites


def test_a_scale_for_each_channel_is_no_dropout():
    g, x, const = net()
    mask = g.add("greater_equal", random(g, x), const(0.25))
    scaled = g.add("mul", x, const(np.array([1.0, 2, 3, 4])))
    g.outputs["y"] = g.add("select", mask, scaled, const(0.0), name="dropout")
    trace = Trace()
    RemoveTrainingNodes().run(g, trace)
    assert "dropout" in g.nodes and not trace.rewrites


def test_an_unknown_type_gives_way_to_the_known_one():
    g, x, const = net()
    noise = opaque(g, "RandomUniform", x, shape=None)
    mask = g.add("greater_equal", noise, const(0.5))
    dropped = g.add("select", mask, g.add("mul", x, const(2.0)), const(0.0))
    assert g.types[dropped].shape is None
    g.outputs["y"] = g.add("relu", dropped, name="y")
    RemoveTrainingNodes().run(g)
    assert g.types["y"] == TensorType("float64", (None, 4))


def test_a_mask_that_does_not_undo_its_scale_is_refused():
    g, x, const = net()
    g.outputs["y"] = tf2(g, x, const, scale=2.0)
    before, trace = g.copy(), Trace()
    RemoveTrainingNodes().run(g, trace)
    assert g.topological() == before.topological()
    assert reasons(trace) == [
        ("dropout", "it scales by 1.5 on average, a dropout by 1"),
        ("RandomUniform", "a random op that is not part of a dropout"),
    ]


def test_an_arithmetic_mask_without_randomness_stays():
    g, x, const = net()
    mask = g.add("floor", g.add("add", const(0.7), x))
    g.outputs["y"] = g.add("mul", g.add("div", x, const(0.7)), mask, name="y")
    assert not run_pass(RemoveTrainingNodes(), g).rewrites


def test_ops_that_pass_their_input_through():
    g, x, _ = net()
    y = opaque(g, "CheckNumerics", opaque(g, "StopGradient", x))
    g.outputs["y"] = g.add("relu", y, name="y")
    RemoveTrainingNodes().run(g)
    assert sorted(g.nodes) == ["x", "y"]
    expected = Graph("net")
    expected.outputs["y"] = expected.add("relu", expected.input("x", "float64", (None, 4)))
    assert_same_function(expected, g)


def test_control_edges_are_refused():
    g, x, _ = net()
    attrs = {
        "kind": "StopGradient",
        "types": (TensorType("float64", (None, 4)),),
        "source": Source(),
    }
    guard = g.const(np.float64(0), "guard")
    g.outputs["y"] = g.insert(Node("y", "opaque", (x,), attrs, control=(guard,)))
    trace = Trace()
    RemoveTrainingNodes().run(g, trace)
    assert reasons(trace) == [("y", "it has control edges")] and "y" in g.nodes
