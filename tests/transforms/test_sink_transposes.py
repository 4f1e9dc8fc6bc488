import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.transforms.sink_transposes import SinkTransposes
from tests.helpers.evaluate import reasons, run_pass
from tests.helpers.graphs import ops

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
RNG = np.random.default_rng(0)


def move(g: Graph, x: str, perm: tuple, name: str = "t") -> str:
    return g.add("transpose", x, name=name, attrs={"perm": perm})


def net(shape=(2, 4, 5, 3)):
    g = Graph("net")
    x = g.input("x", "float64", shape)
    return g, x, move(g, x, TO_NCHW)


def back(g: Graph, y: str) -> None:
    """The graph continues in NHWC, as the next layer would."""
    g.outputs["y"] = g.add("neg", move(g, y, TO_NHWC), name="next")


def test_golden():
    g, _, t = net()
    y = g.add(
        "relu", g.add("add", t, g.const(np.arange(3.0).reshape(3, 1, 1), "c"), name="a"), name="r"
    )
    back(g, y)
    run_pass(SinkTransposes(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[2,4,5,3]}\n"
        "  %c/untransposed = const {value=float64[1,1,1,3]:[0.0,1.0,2.0]}\n"
        "  %a/untransposed = add(%x, %c/untransposed) : float64[2,4,5,3]\n"
        "  %r/untransposed = relu(%a/untransposed) : float64[2,4,5,3]\n"
        "  %next = neg(%r/untransposed) : float64[2,4,5,3]\n"
        '  return "y" = %next\n'
        "}\n"
    )


PASSED = {
    "swish": lambda g, t: g.add("swish", t),
    "scalar": lambda g, t: g.add("mul", g.const(2.0), t),
    "itself": lambda g, t: g.add("add", t, t),
    "full constant": lambda g, t: g.add("add", g.const(RNG.normal(size=(1, 3, 4, 5))), t),
    "row constant": lambda g, t: g.add("add", t, g.const(RNG.normal(size=(5,)))),
    "concat": lambda g, t: g.add("concat", t, g.add("relu", t), attrs={"axis": 1}),
    "concat of a constant": lambda g, t: g.add(
        "concat", t, g.const(RNG.normal(size=(2, 1, 4, 5))), attrs={"axis": -3}
    ),
    "pad": lambda g, t: g.add("pad", t, attrs={"paddings": ((0, 0), (1, 0), (2, 3), (0, 4))}),
    "slice": lambda g, t: g.add(
        "slice", t, attrs={"begin": (0, 1, 0, 2), "end": (2, 3, 4, 5), "strides": (1, 1, 2, 1)}
    ),
    "mean": lambda g, t: g.add("mean", t, attrs={"axes": (2, 3), "keepdims": True}),
}


@pytest.mark.parametrize("op", PASSED)
def test_ops_that_are_passed(op):
    g, _, t = net()
    back(g, PASSED[op](g, t))
    run_pass(SinkTransposes(), g)
    assert ops(g).count("transpose") == 0


@pytest.mark.parametrize(
    ("axes", "left"), [((2, 3), 0), ((-1, -2), 0), ((1,), 0), ((3,), 1), ((0,), 1)], ids=str
)
@pytest.mark.parametrize("keepdims", [True, False])
def test_reductions(axes, left, keepdims):
    g, _, t = net()
    g.outputs["y"] = g.add("mean", t, attrs={"axes": axes, "keepdims": keepdims})
    run_pass(SinkTransposes(), g)
    assert ops(g).count("transpose") == left


def test_flatten_after_a_pool_needs_no_transpose():
    g, _, t = net((None, 1, 1, 6))
    g.outputs["y"] = g.add("reshape", g.add("relu", t), attrs={"shape": (-1, 6)})
    run_pass(SinkTransposes(), g)
    assert [n.op for n in g.topological()] == ["input", "relu", "reshape"]


def test_squeeze():
    g, _, t = net((2, 1, 1, 6))
    g.outputs["y"] = g.add("squeeze", t, attrs={"axes": (2, 3)})
    run_pass(SinkTransposes(), g)
    assert [n.op for n in g.topological()] == ["input", "squeeze"]


def test_the_last_axis_stays_last():
    g = Graph("net")
    x = g.input("x", "float64", (2, 4, 5, 3))
    b = g.const(RNG.normal(size=3), "b")
    g.outputs["y"] = g.add("bias_add", move(g, x, (0, 2, 1, 3)), b, name="moved")
    g.outputs["z"] = g.add("bias_add", move(g, x, (0, 1, 3, 2)), g.const(np.ones(5)), name="stays")
    run_pass(SinkTransposes(), g)
    assert g.nodes["moved"].op == "transpose" and g.nodes["stays"].op == "bias_add"


def test_a_transpose_with_a_second_user_stays_for_it():
    g, _, t = net()
    g.outputs["nchw"] = t
    back(g, g.add("relu", t))
    run_pass(SinkTransposes(), g)
    assert [n.name for n in g.nodes.values() if n.op == "transpose"] == ["t"]


def test_residual_branches_meet():
    g, x, t = net()
    a, b = g.add("relu", t), g.add("tanh", move(g, x, TO_NCHW, "t2"))
    back(g, g.add("maximum", a, b))
    run_pass(SinkTransposes(), g)
    assert ops(g).count("transpose") == 0


def test_inputs_in_two_layouts_are_refused():
    g, _, t = net()
    other = g.input("other", "float64", (2, 3, 4, 5))
    g.outputs["y"] = g.add("add", t, other, name="y")
    trace = run_pass(SinkTransposes(), g)
    assert reasons(trace) == [("y", "`other` is not transposed, another input by (0, 3, 1, 2)")]
    assert not trace.rewrites


def test_a_vector_that_is_computed_is_not_turned():
    """A row of the image beside an image of channels first: its one axis is the width."""
    g, x, t = net()
    row = g.add("mean", x, attrs={"axes": (0, 1, 3), "keepdims": False}, name="row")
    g.outputs["y"] = g.add("add", t, row, name="y")
    trace = run_pass(SinkTransposes(), g)
    assert reasons(trace) == [("y", "`row` is not transposed, another input by (0, 3, 1, 2)")]


def test_an_unknown_shape():
    g, _, t = net(None)
    g.outputs["y"] = g.add("relu", g.add("add", t, g.const(1.0)))
    SinkTransposes().run(g)
    assert [n.op for n in g.topological() if n.op != "const"][-1] == "transpose"


def test_a_long_chain_is_linear():
    g, _, t = net((1, 2, 2, 1))
    for _ in range(2000):
        t = g.add("relu", t)
    g.outputs["y"] = t
    trace = run_pass(SinkTransposes(), g)
    assert len(trace.rewrites) <= 2002


# -- reshapes, new axes, and values that are not transposed -------------------------------------


def shuffled(g: Graph, x: str, groups: int = 2) -> str:
    """Channels of an NCHW image split, exchanged and joined."""
    n, c, h, w = (-1 if size is None else size for size in g.types[x].shape)
    split = g.add("reshape", x, attrs={"shape": (n, groups, c // groups, h, w)})
    turned = g.add("transpose", split, attrs={"perm": (0, 2, 1, 3, 4)})
    return g.add("reshape", turned, attrs={"shape": (n, c, h, w)})


@pytest.mark.parametrize("batch", [1, 2, None])
def test_channel_shuffle_keeps_its_own_transpose_only(batch):
    g, _, t = net((batch, 4, 5, 6))
    back(g, shuffled(g, t))
    run_pass(SinkTransposes(), g)
    (left,) = (n for n in g.nodes.values() if n.op == "transpose")
    assert left.attrs["perm"] == (0, 1, 2, 4, 3)
    shapes = [n.attrs["shape"] for n in g.nodes.values() if n.op == "reshape"]
    assert min(min(shape) for shape in shapes) == (batch or -1)


def test_reshape_that_scatters_axes_is_not_passed():
    """Heads of attention: [n, heads, time, size] -> [n, time, heads * size]."""
    g = Graph("net")
    x = g.input("x", "float64", (2, 3, 5, 4))
    t = g.add("transpose", x, name="t", attrs={"perm": (0, 2, 1, 3)})
    g.outputs["y"] = g.add("reshape", t, name="y", attrs={"shape": (2, 5, 12)})
    before = print_graph(g)
    run_pass(SinkTransposes(), g)
    assert print_graph(g) == before


@pytest.mark.parametrize("axis", range(5))
def test_new_axis_is_passed(axis):
    g, _, t = net()
    y = g.add("expand_dims", t, attrs={"axis": axis})
    g.outputs["y"] = g.add("relu", y, name="y")
    run_pass(SinkTransposes(), g)
    assert g.nodes["y"].op == "transpose"


def test_gate_of_one_value_a_channel_is_reshaped():
    g, _, t = net()
    gate = g.add("relu", g.input("gate", "float64", (2, 3, 1, 1)))
    back(g, g.add("mul", t, gate))
    run_pass(SinkTransposes(), g)
    assert ops(g).count("transpose") == 0


def test_input_beside_what_is_computed_is_turned_at_the_rim():
    g = Graph("net")
    x = g.input("x", "float64", (2, 4, 5, 3))
    t = move(g, g.add("relu", x, name="r"), TO_NCHW)
    other = g.input("other", "float64", (2, 3, 4, 5))
    back(g, g.add("add", t, other))
    run_pass(SinkTransposes(), g)
    (left,) = (n for n in g.nodes.values() if n.op == "transpose")
    assert left.inputs == ("other",)
