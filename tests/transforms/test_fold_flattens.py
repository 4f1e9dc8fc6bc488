"""Dense layers behind flattened NCHW images read the image as it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.transforms.fold_flattens import FoldFlattens
from qgraph.transforms.sink_transposes import SinkTransposes
from tests.helpers.evaluate import reasons, run_pass
from tests.helpers.graphs import ops

TO_NCHW = {"perm": (0, 3, 1, 2)}
RNG = np.random.default_rng(0)


def flattened(g: Graph, shape=(2, 2, 3, 4), name="x", width=24) -> str:
    x = g.input(name, "float64", shape)
    t = g.add("transpose", x, name=f"{name}/t", attrs=TO_NCHW)
    return g.add("reshape", t, name=f"{name}/flat", attrs={"shape": (-1, width)})


def dense(g: Graph, x: str, rows: int, out: int = 3, name: str = "y") -> str:
    w = g.const(RNG.normal(size=(rows, out)), f"{name}/w")
    g.outputs[name] = g.add("matmul", x, w, name=name)
    return g.outputs[name]


def test_golden():
    g = Graph("net")
    x = g.input("x", "float64", (None, 1, 2, 2))
    t = g.add("transpose", x, name="t", attrs=TO_NCHW)
    f = g.add("reshape", t, name="flat", attrs={"shape": (-1, 4)})
    w = g.const(np.arange(4.0).reshape(4, 1), "w")
    g.outputs["y"] = g.add("matmul", g.add("relu", f, name="r"), w, name="y")
    run_pass(FoldFlattens(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[?,1,2,2]}\n"
        "  %flat/untransposed = reshape(%x) {shape=(-1, 4)} : float64[?,4]\n"
        "  %r/untransposed = relu(%flat/untransposed) : float64[?,4]\n"
        "  %w/untransposed = const {value=float64[4,1]:[0.0,2.0,1.0,3.0]}\n"
        "  %y = matmul(%r/untransposed, %w/untransposed) : float64[?,1]\n"
        '  return "y" = %y\n'
        "}\n"
    )


def test_an_image_of_unknown_size_stays_turned():
    g = Graph("net")
    dense(g, flattened(g, shape=None), 24)
    before = print_graph(g)
    FoldFlattens().run(g)
    assert print_graph(g) == before


def test_two_heads_share_what_they_read():
    g = Graph("net")
    f = g.add("relu", flattened(g), name="r")
    dense(g, f, 24, name="y")
    dense(g, f, 24, name="z")
    run_pass(FoldFlattens(), g)
    assert ops(g).count("transpose") == 0
    assert sum(n.op == "relu" for n in g.nodes.values()) == 1


def test_features_joined_of_two_images_and_a_vector():
    g = Graph("net")
    v = g.input("v", "float64", (2, 5))
    parts = flattened(g), v, g.add("tanh", flattened(g, (2, 3, 1, 2), "u", 6))
    dense(g, g.add("concat", *parts, attrs={"axis": 1}), 35)
    run_pass(FoldFlattens(), g)
    assert ops(g).count("transpose") == 0


def test_weights_that_are_not_constant_are_refused():
    g = Graph("net")
    w = g.input("w", "float64", (24, 3))
    g.outputs["y"] = g.add("matmul", flattened(g), w)
    assert reasons(run_pass(FoldFlattens(), g)) == [("matmul", "its weights `w` are not constant")]
    assert ops(g).count("transpose") == 1


@pytest.mark.parametrize("shape", [(-1, 12), (4, 12)])
def test_rows_that_are_not_whole_images_are_left_alone(shape):
    g = Graph("net")
    x = g.input("x", "float64", (2, 2, 3, 4))
    t = g.add("transpose", x, attrs=TO_NCHW)
    dense(g, g.add("reshape", t, attrs={"shape": shape}), 12)
    run_pass(FoldFlattens(), g)
    assert ops(g).count("transpose") == 1


@settings(max_examples=150)
@given(data=st.data())
def test_reshapes_behind_any_transpose_keep_the_function(data):
    """Both passes, on a chain of transposes and reshapes that split and join axes."""
    dims = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=2, max_size=4))
    g = Graph("net")
    value = g.input("x", "float64", tuple(dims))
    for _ in range(data.draw(st.integers(1, 4))):
        shape = [d or 0 for d in g.types[value].shape or ()]
        perm = tuple(data.draw(st.permutations(range(len(shape)))))
        value = g.add("transpose", value, attrs={"perm": perm})
        shape = [shape[p] for p in perm]
        at = data.draw(st.integers(0, len(shape) - 1))
        if shape[at] == 4 and data.draw(st.booleans()):
            shape[at : at + 1] = [2, 2]
        elif at + 1 < len(shape):
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif data.draw(st.booleans()):
            shape.insert(at, 1)
        value = g.add("reshape", value, attrs={"shape": tuple(shape)})
    rows = int(np.prod([d or 0 for d in g.types[value].shape or ()][1:], dtype=int))
    flat = g.add("reshape", value, attrs={"shape": (-1, rows)})
    dense(g, flat, rows)
    run_pass(SinkTransposes(), g)
    run_pass(FoldFlattens(), g)
