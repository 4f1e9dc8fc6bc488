"""Every way in which a graph can be broken is found, and named."""

from dataclasses import replace

import numpy as np
import pytest

from qgraph.errors import GraphError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import QuantSpec, TensorType
from qgraph.ir.verify import verify

SPEC = QuantSpec(8, True, "input", 4)


def net() -> Graph:
    g = Graph("net")
    x = g.input("x", "float32", (None, 4))
    q = g.add("quantize", x, name="q", attrs={"spec": SPEC})
    w = g.const(np.ones((4, 3), np.float32), "w")
    y = g.add("matmul", q, w, name="y", control=["x"])
    g.outputs["out"] = g.add("relu", y, name="r")
    return g


def put(g: Graph, name: str, **changes) -> None:
    """Change a node without informing the graph."""
    g.nodes[name] = replace(g.nodes[name], **changes)
    g._order = None


def relink(g: Graph, name: str, **changes) -> None:
    """Change a node, and keep the index of users correct."""
    g._unlink(g.nodes[name])
    put(g, name, **changes)
    g._link(g.nodes[name])


def spec(**changes):
    return lambda g: put(g, "q", attrs={"spec": replace(SPEC, **changes)})


BREAK = {
    "dangling input": (lambda g: relink(g, "r", inputs=("gone",)), "r: input `gone` does not"),
    "output 1 of one": (lambda g: relink(g, "r", inputs=("y:1",)), "r: input `y:1` does not"),
    "node taken away": (lambda g: g.nodes.pop("w"), "y: input `w` does not exist"),
    "control from nowhere": (lambda g: relink(g, "y", control=("no",)), "y: control input `no`"),
    "cycle": (lambda g: relink(g, "q", inputs=("r",)), "the graph has a cycle: "),
    "control cycle": (lambda g: relink(g, "q", control=("r",)), "the graph has a cycle: "),
    "dtype": (lambda g: g.types.update(r=TensorType("int8", (None, 3))), "r: `r` is recorded"),
    "shape": (lambda g: g.types.update(r=TensorType("float32", (1, 3))), "r: `r` is recorded as"),
    "no type": (lambda g: g.types.pop("r"), "output `out` stands for `r`, which does not exist"),
    "constant": (lambda g: put(g, "w", attrs={"value": np.ones((5, 3))}), "w: `w` is recorded"),
    "unknown op": (lambda g: put(g, "r", op="rolu"), "r: unknown op `rolu`"),
    "arity": (lambda g: relink(g, "y", inputs=("q",)), "y: matmul: takes 2 inputs, found 1"),
    "attribute": (lambda g: put(g, "x", attrs={}), "x: input: attribute `type` is missing"),
    "output count": (lambda g: put(g, "r", outputs=2), "r: relu: has 2 outputs, its op gives 1"),
    "filed wrongly": (lambda g: g.nodes.update(r=Node("s", "relu", ("y",))), "s: stored under"),
    "name of a value": (lambda g: g.nodes.update({"r:1": Node("r:1", "relu", ("y",))}),
                        "r:1: `name:number` names a value"),
    "input twice": (lambda g: g.inputs.append("x"), "inputs are ['x', 'x']"),
    "input unlisted": (lambda g: g.inputs.clear(), "inputs are [], input nodes are ['x']"),
    "output of nothing": (lambda g: g.outputs.update(out="gone"), "output `out` stands for `gone`"),
    "quantizer without spec": (lambda g: put(g, "q", attrs={}),
                               "q: quantize: attribute `spec` is missing"),
    "spec of another type": (lambda g: put(g, "q", attrs={"spec": "s8"}),
                             "q: quantize: attribute `spec` is 's8'"),
    "no bits": (spec(bits=0), "q: quantize: 0 bits are outside 1..32"),
    "rounding": (spec(rounding="up"), "q: quantize: unknown rounding or overflow"),
    "overflow": (spec(overflow="error"), "q: quantize: unknown rounding or overflow"),
    "role": (spec(role="wheel"),
             "q: quantize: unknown role `wheel`\n  choose one of input, index, activation"),
    "table without domain": (
        lambda g: put(g, "q", op="lookup", attrs={"spec": SPEC, "function": "tanh"}),
        "q: lookup: attribute `domain` is missing",
    ),
    "stale user": (lambda g: put(g, "y", inputs=("x", "w")), "the index of users does not match"),
    "forgotten user": (lambda g: g._users["y"].clear(), "y: the index of users does not match"),
    "user that is not": (lambda g: g._users["x"].update(r=1), "x: the index of users does not"),
    "user that is gone": (lambda g: g._users.update(gone={"r": 1}), "gone: the index of users"),
    "uses counted wrong": (lambda g: g._users["y"].update(r=2), "y: the index of users does not"),
    "stale control": (lambda g: put(g, "y", control=()), "x: the index of users does not"),
    "stale order": (lambda g: g.nodes.update(r=Node("r", "relu6", ("y",))), "the recorded order"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAK)
def test_broken(name):
    graph = net()
    graph.topological()
    verify(graph)
    damage, complaint = BREAK[name]
    damage(graph)
    with pytest.raises(GraphError) as error:
        verify(graph)
    assert complaint in str(error.value)


def test_a_recorded_order_that_is_no_order():
    graph = net()
    graph.topological().reverse()
    with pytest.raises(GraphError, match="the recorded order"):
        verify(graph)


def test_a_value_used_twice_by_one_node():
    graph = net()
    graph.outputs["sum"] = graph.add("add", "r", "r")
    verify(graph)
