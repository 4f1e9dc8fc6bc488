import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.rewrite.trace import Trace
from qgraph.transforms.canonicalize_arithmetic import CanonicalizeArithmetic
from tests.helpers.evaluate import reasons, run_pass
from tests.helpers.graphs import ops
from tests.helpers.layers import WINDOW

RNG = np.random.default_rng(0)


def net():
    g = Graph("net")
    return g, g.input("x", "float64", (None, 4, 4, 3))


def conv(g: Graph, x: str) -> str:
    w = g.const(RNG.normal(size=(3, 3, 3, 3)), "w")
    return g.add("conv2d", x, w, name="conv", attrs=WINDOW)


def test_golden():
    g, x = net()
    y = g.add("sub", x, g.const(np.array([1.0, 2.0, 3.0]), "mean"), name="centered")
    y = g.add("div", y, g.const(4.0, "std"), name="scaled")
    g.outputs["y"] = g.add("neg", y, name="minus")
    run_pass(CanonicalizeArithmetic(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[?,4,4,3]}\n"
        "  %mean/negated = const {value=float64[3]:[-1.0,-2.0,-3.0]}\n"
        "  %centered = add(%x, %mean/negated) : float64[?,4,4,3]\n"
        "  %std/reciprocal = const {value=float64[]:[0.25]}\n"
        "  %scaled = mul(%centered, %std/reciprocal) : float64[?,4,4,3]\n"
        "  %minus/minus_one = const {value=float64[]:[-1.0]}\n"
        "  %minus = mul(%scaled, %minus/minus_one) : float64[?,4,4,3]\n"
        '  return "y" = %minus\n'
        "}\n"
    )


def test_biases_whose_sum_is_not_finite_stay_two():
    g = Graph("net")
    y = g.input("x", "float32", (None, 4, 4, 3))
    y = g.add("conv2d", y, g.const(np.ones((1, 1, 3, 3), np.float32), "w"), attrs=WINDOW)
    large = np.full(3, 3e38, np.float32)
    y = g.add("bias_add", y, g.const(large, "b"))
    g.outputs["y"] = g.add("bias_add", y, g.const(large.copy(), "c"), name="y")
    trace = Trace()
    CanonicalizeArithmetic().run(g, trace)
    assert ops(g) == ["input", "conv2d", "bias_add", "bias_add"]
    assert reasons(trace) == [("y", "the sum with the bias before it is not finite")]


@pytest.mark.parametrize("shape", [(3,), (1, 1, 1, 3), (1, 3), (), (1,)], ids=str)
@pytest.mark.parametrize("swapped", [True, False])
def test_a_vector_added_to_a_layer_is_a_bias(shape, swapped):
    g, x = net()
    inputs = [conv(g, x), g.const(RNG.normal(size=shape), "b")]
    g.outputs["y"] = g.add("add", *(reversed(inputs) if swapped else inputs), name="y")
    run_pass(CanonicalizeArithmetic(), g)
    assert ops(g) == ["input", "conv2d", "bias_add"]
    assert g.constant(g.nodes["y"].inputs[1]).shape == (3,)


def test_biases_in_a_row_become_one():
    g, x = net()
    y = conv(g, x)
    y = g.add("bias_add", y, g.const(RNG.normal(size=3), "b"))
    y = g.add("sub", y, g.const(RNG.normal(size=3), "c"))
    g.outputs["y"] = g.add("add", y, g.const(0.5, "d"))
    run_pass(CanonicalizeArithmetic(), g)
    assert ops(g) == ["input", "conv2d", "bias_add"]


def test_a_bias_that_is_read_in_between_is_refused():
    g, x = net()
    first = g.add("bias_add", conv(g, x), g.const(RNG.normal(size=3), "b"), name="first")
    g.outputs["y"] = g.add("bias_add", first, g.const(RNG.normal(size=3), "c"), name="second")
    g.outputs["first"] = first
    trace = run_pass(CanonicalizeArithmetic(), g)
    assert reasons(trace) == [
        ("second", "cannot join the bias before it: `first` is also used by output `first`")
    ]


def test_a_bias_that_is_no_constant_is_not_joined():
    g, x = net()
    vector = g.add("mean", x, attrs={"axes": (0, 1, 2), "keepdims": False})
    first = g.add("bias_add", conv(g, x), vector, name="first")
    g.outputs["y"] = g.add("bias_add", first, g.const(RNG.normal(size=3), "c"), name="second")
    run_pass(CanonicalizeArithmetic(), g)
    assert g.nodes["first"].inputs[1] == vector
    assert g.nodes["second"].inputs == ("first", "c")


@pytest.mark.parametrize("shape", [(4, 1), (1, 4, 1, 3), (5, 1, 1, 1)], ids=str)
def test_a_map_added_to_a_layer_is_no_bias(shape):
    g, x = net()
    g.outputs["y"] = g.add("add", conv(g, x), g.const(RNG.normal(size=shape), "b"))
    before = g.copy()
    if shape[0] != 5:
        run_pass(CanonicalizeArithmetic(), g)
    else:
        CanonicalizeArithmetic().run(g)
    assert ops(g) == ops(before) == ["input", "conv2d", "add"]


def test_a_bias_that_widens_the_layer_is_refused():
    g = Graph("net")
    x = g.input("x", "float64", (2, 3))
    y = g.add("matmul", x, g.const(RNG.normal(size=(3, 4)), "w"), name="fc")
    g.outputs["y"] = g.add("add", y, g.const(np.ones((1, 1, 4)), "b"), name="y")
    trace = run_pass(CanonicalizeArithmetic(), g)
    assert reasons(trace) == [("y", "adding `b` widens `fc`, so it is not a bias")]


def test_a_neutral_element_goes():
    g, x = net()
    g.outputs["y"] = g.add("div", x, g.const(1.0, "c"))
    run_pass(CanonicalizeArithmetic(), g)
    assert g.outputs == {"y": "x"}


def test_a_division_by_zero_is_refused():
    g, x = net()
    g.outputs["y"] = g.add("div", x, g.const(np.array([1.0, 0.0, 2.0]), "c"), name="y")
    trace = Trace()
    CanonicalizeArithmetic().run(g, trace)
    assert reasons(trace) == [("y", "`c` has elements without a finite reciprocal")]
    assert g.nodes["y"].op == "div"


def test_integers_are_left_alone():
    g = Graph("net")
    x = g.input("x", "uint8", (2,))
    y = g.add("sub", x, g.const(np.array([1, 2], "uint8"), "c"))
    g.outputs["y"] = g.add("sub", g.const(np.array([1, 2], "uint8"), "c"), y)
    before = g.copy()
    CanonicalizeArithmetic().run(g)
    assert g.topological() == before.topological()


def test_a_shared_constant_is_not_changed():
    g, x = net()
    c = g.const(np.array([1.0, 2.0, 3.0]), "c")
    g.outputs["a"], g.outputs["b"] = g.add("sub", x, c), g.add("div", x, c)
    g.outputs["c"] = g.add("maximum", x, c)
    run_pass(CanonicalizeArithmetic(), g)
    assert np.array_equal(g.constant("c"), [1, 2, 3])
