"""Float ops that TensorFlow has under another name, or not at all: as the interpreter has them."""

from functools import partial

import numpy as np
import pytest

from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.ops.arithmetic import COMPARISONS
from tests.helpers.layers import WINDOW

RNG = np.random.default_rng(0)


def value(g, *shape, name="x"):
    return g.input(name, "float32", shape)


def selected(g):
    x = value(g, 3, 4)
    zero = g.const(np.float32(0))
    return g.add("select", g.add("equal", g.add("relu", x), zero), g.const(np.float32(7)), x)


def as_float(g, flags):
    return g.add("cast", flags, attrs={"dtype": "float32"})


def compared(op, g):
    x, steps = value(g, 3, 4), g.const(np.float32([-1, 0, 1, 2]))
    return as_float(g, g.add(op, g.add("relu", x), g.add("relu", steps)))


def logical(op, g):
    x = value(g, 3, 4)
    flags = [g.add("greater", x, g.const(np.float32(bound))) for bound in (0, 1)]
    return as_float(g, g.add(op, *flags[: 1 if op == "logical_not" else 2]))


OPS = {
    "elu": lambda g: g.add("elu", value(g, 3, 4), attrs={"alpha": 0.3}),
    "hard_sigmoid": lambda g: g.add(
        "hard_sigmoid", value(g, 3, 4), attrs={"alpha": 0.3, "beta": 0.4}
    ),
    "hard_sigmoid_plain": lambda g: g.add("hard_sigmoid", value(g, 3, 4)),
    "batch_matmul": lambda g: g.add(
        "batch_matmul", value(g, 2, 1, 3, 4), value(g, 5, 4, 2, name="u")
    ),
    "select": selected,
    **{op: partial(compared, op) for op in COMPARISONS},
    **{op: partial(logical, op) for op in ("logical_and", "logical_or", "logical_not")},
}


@pytest.mark.parametrize("op", OPS)
def test_emitted_graph_computes_the_same(op):
    g = Graph("net")
    g.outputs["y"] = OPS[op](g)
    feeds = {
        name: (3 * RNG.normal(size=g.types[name].shape)).astype("float32") for name in g.inputs
    }
    wanted = evaluate(g, feeds)["y"]
    (found,) = TFProgram(emit_graph_def(g)).run(feeds, ["y"])
    assert np.ptp(wanted) > 0
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_products_behind_a_convolution_do_not_end_the_process():
    """Grappler would move them into the filter (`FIXED` in lower/linear.py), and abort."""
    g = Graph("net")
    y = g.add(
        "conv2d",
        g.input("x", "float32", (None, 5, 5, 2)),
        g.const(RNG.normal(size=(3, 3, 2, 2)).astype(np.float32)),
        attrs=WINDOW,
    )
    g.outputs["alone"] = y
    for factor in (128.0, 0.25, 128.0):
        y = g.add("mul", y, g.const(np.float32(factor)))
    g.outputs["y"] = y
    feeds = {"x": RNG.normal(size=(4, 5, 5, 2)).astype(np.float32)}
    (alone,) = TFProgram(emit_graph_def(g)).run(feeds, ["alone"])
    (found,) = TFProgram(emit_graph_def(g)).run(feeds, ["y"])
    assert np.ptp(alone) > 0 and np.array_equal(found, 4096 * alone)
