"""Values over chunks, in place where nothing else sees the memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from qgraph.interpret import evaluate, run_node
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import QuantSpec, Role
from qgraph.parallel import over_chunks
from qgraph.quant.graph_values import GraphValues
from qgraph.quant.samples.data import chunk_count, chunk_inputs

SPEC = QuantSpec(8, True, Role.ACTIVATION, 5)


ENDS = ("r", "end", "of_view", "x")


def network() -> Graph:
    """Results that may be overwritten, and some not: `c` is taken twice, `same` is a view."""
    g = Graph("net")
    rng = np.random.default_rng(0)
    w = g.const(rng.normal(size=(1, 1, 3, 3)).astype(np.float32), "w")
    b = g.const(np.array([1, -2, 3], np.float32), "b")
    window = {"strides": (1, 1), "dilations": (1, 1), "padding": "valid"}
    g.input("x", "float32", (None, 4, 4, 3))
    g.add("relu", "x", name="of_input")
    g.add("identity", "x", name="same")
    g.add("relu", "same", name="of_view")
    g.add("conv2d", "of_input", w, name="c", attrs=window)
    g.add("relu6", "c", name="r")
    g.add("bias_add", "c", b, name="a")
    g.add("quantize", "a", name="q", attrs={"spec": SPEC})
    g.add("relu", "q", name="once")
    g.add("identity", "once", name="end")
    g.outputs = {name: g.add("identity", name, name=f"{name}_last") for name in ENDS}
    return g


def test_what_is_written_in_place_is_seen_by_nothing_else() -> None:
    g = network()
    x = np.random.default_rng(1).normal(size=(40, 4, 4, 3)).astype(np.float32)
    given = x.copy()
    chunks = chunk_inputs(g, {"x": x})
    wanted = evaluate(g, {"x": x})
    with over_chunks(chunk_count(chunks)) as each:
        values = GraphValues(g, chunks, each)
        for node in g.topological():
            if not node.name.endswith("_last"):
                values.run(node)
        for name in ENDS:
            np.testing.assert_array_equal(np.concatenate([*values.chunks(name)]), wanted[name])
    np.testing.assert_array_equal(x, given)


@pytest.mark.parametrize(
    ("op", "attrs", "others"),
    [
        ("relu", {}, []),
        ("relu6", {}, []),
        ("bias_add", {}, [np.float32([1, -2, 3])]),
        ("bias_add", {}, [np.float64([1, -2, 3])]),
        ("quantize", {"spec": SPEC}, []),
    ],
)
def test_in_place_is_the_same(op: str, attrs, others) -> None:
    x = np.random.default_rng(2).normal(size=(2, 5, 3)).astype(np.float32) * 9
    node = Node("n", op, ("x", *(f"i{i}" for i in range(len(others)))), attrs)
    (wanted,) = run_node(node, [x, *others])
    held = x.copy()
    held.flags.writeable = False
    (apart,) = run_node(node, [held, *others], in_place=True)
    (found,) = run_node(node, [x, *others], in_place=True)
    np.testing.assert_array_equal(apart, wanted)
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype
    assert not np.shares_memory(apart, held)
    assert np.shares_memory(found, x) == (found.dtype == x.dtype)


def test_threads_take_the_next_item_each() -> None:
    """One thread that waits does not keep the others from what is left."""
    gate = threading.Event()

    def work(i: int) -> int:
        if i == 0:
            assert gate.wait(60)
        elif i == 5:
            gate.set()
        return i * i

    with over_chunks(6) as each:
        assert [*each(work, range(6))] == [i * i for i in range(6)]
