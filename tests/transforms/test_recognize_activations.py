import math

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.ir.types import TensorType
from qgraph.transforms.recognize_activations import RecognizeActivations
from tests.helpers.evaluate import run_pass


def relu(g, x, c):
    return g.add("maximum", c(0.0), x)


def relu6_of_relu(g, x, c):
    return g.add("minimum", g.add("relu", x), c(6.0))


def relu6(g, x, c):
    return g.add("minimum", relu(g, x, c), c(6.0))


def relu6_other_way(g, x, c):
    return g.add("maximum", c(0.0), g.add("minimum", x, c(6.0)))


def relu6_ends_in_relu(g, x, c):
    return g.add("relu", g.add("minimum", x, c(6.0)))


def swish(g, x, c):
    return g.add("mul", g.add("sigmoid", x), x)


def shifted(g, x, c):
    return g.add("relu6", g.add("add", c(3.0), x))


def hard_sigmoid(g, x, c):
    return g.add("mul", shifted(g, x, c), c(1 / 6))


def hard_sigmoid_div(g, x, c):
    return g.add("div", shifted(g, x, c), c(6.0))


def hard_swish(g, x, c):
    return g.add("mul", x, hard_sigmoid(g, x, c))


def hard_swish_div(g, x, c):
    return g.add("div", g.add("mul", x, shifted(g, x, c)), c(6.0))


def hard_swish_mul(g, x, c):
    return g.add("mul", c(1 / 6), g.add("mul", shifted(g, x, c), x))


def hard_swish_of_minimum(g, x, c):
    return g.add("mul", x, g.add("div", relu6(g, g.add("add", x, c(3.0)), c), c(6.0)))


def gelu_erf(g, x, c):
    inner = g.add("div", x, c(math.sqrt(2)))
    return g.add("mul", g.add("mul", c(0.5), x), g.add("add", c(1.0), g.add("erf", inner)))


def gelu_erfc(g, x, c):
    """tf.nn.gelu of TensorFlow 2.21."""
    inner = g.add("mul", g.add("neg", x), c(math.sqrt(1 / 2)))
    erfc = g.add("sub", c(1.0), g.add("erf", inner))
    return g.add("mul", g.add("mul", c(0.5), x), erfc)


def gelu_tanh(g, x, c):
    cubic = g.add("mul", c(0.044715), g.add("pow", x, c(3.0)))
    inner = g.add("mul", c(math.sqrt(2 / math.pi)), g.add("add", x, cubic))
    return g.add("mul", g.add("mul", c(0.5), x), g.add("add", c(1.0), g.add("tanh", inner)))


FORMS = {
    relu: "relu",
    relu6: "relu6",
    relu6_of_relu: "relu6",
    relu6_other_way: "relu6",
    relu6_ends_in_relu: "relu6",
    swish: "swish",
    hard_sigmoid: "hard_sigmoid",
    hard_sigmoid_div: "hard_sigmoid",
    hard_swish: "hard_swish",
    hard_swish_div: "hard_swish",
    hard_swish_mul: "hard_swish",
    hard_swish_of_minimum: "hard_swish",
    gelu_erf: "gelu",
    gelu_erfc: "gelu",
    gelu_tanh: "gelu",
}


def build(form, dtype="float64"):
    g = Graph("net")
    x = g.input("x", "float64", (4, 50))
    ten = g.add("mul", x, g.const(np.float64(4.0), "four"), name="wide")
    g.outputs["y"] = form(g, ten, lambda v: g.const(np.asarray(v, "float64"), "c"))
    return g


@pytest.mark.parametrize(
    ("form", "activation"), FORMS.items(), ids=lambda v: getattr(v, "__name__", v)
)
def test_forms(form, activation):
    g = build(form)
    run_pass(RecognizeActivations(), g)
    assert [n.op for n in g.topological() if n.op != "const"] == ["input", "mul", activation]


def test_golden():
    g = build(gelu_tanh)
    run_pass(RecognizeActivations(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[4,50]}\n"
        "  %four = const {value=float64[]:[4.0]}\n"
        "  %wide = mul(%x, %four) : float64[4,50]\n"
        "  %mul_3 = gelu(%wide) {approximate=True} : float64[4,50]\n"
        '  return "y" = %mul_3\n'
        "}\n"
    )


def test_float32_constants_are_compared_in_float32():
    g = Graph("net")
    x = g.input("x", "float32", (4,))
    g.outputs["y"] = hard_swish(g, x, lambda v: g.const(np.float32(v), "c"))
    RecognizeActivations().run(g)
    assert [n.op for n in g.topological()] == ["input", "hard_swish"]


def test_an_intermediate_value_that_is_used_elsewhere_stays():
    g = Graph("net")
    x = g.input("x", "float64", (4,))
    g.outputs["s"] = g.add("sigmoid", x, name="s")
    g.outputs["y"] = g.add("mul", x, "s", name="y")
    run_pass(RecognizeActivations(), g)
    assert g.nodes["s"].op == "sigmoid" and g.nodes["y"].op == "swish"


@pytest.mark.parametrize("value", [5.0, 1 / 7])
def test_other_constants_are_left_alone(value):
    g = Graph("net")
    x = g.input("x", "float64", (4,))
    g.outputs["y"] = g.add("mul", shifted(g, x, lambda v: g.const(v, "c")), g.const(value))
    assert not run_pass(RecognizeActivations(), g).rewrites


def test_a_sigmoid_of_something_else_is_no_swish():
    g = Graph("net")
    x, z = g.input("x", "float64", (4,)), g.input("z", "float64", (4,))
    g.outputs["y"] = g.add("mul", x, g.add("sigmoid", z))
    assert not run_pass(RecognizeActivations(), g).rewrites


@pytest.mark.parametrize("op", ["relu", "relu6"])
def test_a_bias_of_zeros_stays_with_its_layer(op):
    """It is trained, and a folded batch norm has its statistics there."""
    g = Graph("g")
    x = g.input("x", "float32", (None, 4))
    weights = g.const(np.ones((4, 3), np.float32), "w")
    layer = g.add("matmul", x, weights, name="layer")
    biased = g.add("bias_add", layer, g.const(np.zeros(3, np.float32), "b"), name="biased")
    g.outputs["y"] = g.add(op, biased, name="y")
    assert not run_pass(RecognizeActivations(), g).rewrites


def test_a_constant_that_widens_the_result_is_left_alone():
    g = Graph("net")
    x = g.input("x", "float64", (1, 4))
    g.outputs["y"] = g.add("maximum", x, g.const(np.zeros((3, 1)), "c"), name="y")
    assert not run_pass(RecognizeActivations(), g).rewrites
    assert g.types["y"] == TensorType("float64", (3, 4)) and g.nodes["y"].op == "maximum"
