from itertools import product

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.rewrite.trace import Trace
from qgraph.transforms.recognize_batch_norm import RecognizeBatchNorm
from tests.helpers.evaluate import reasons, run_pass

RNG = np.random.default_rng(0)
C = 3


class Written:
    """Writes a batch norm out, in the order that TensorFlow does."""

    def __init__(self, shape=(C,)):
        self.g = Graph("net")
        self.x = self.g.input("x", "float64", (2, 4, 4, C))
        self.gamma, self.beta, self.mean = (
            self.g.const(RNG.normal(size=shape), n) for n in ("gamma", "beta", "mean")
        )
        self.variance = self.g.const(RNG.uniform(0.5, 2, size=shape), "variance")
        self.shifted = self.g.add("add", self.variance, self.g.const(1e-3, "eps"), name="shifted")

    def op(self, kind, *inputs, name=None):
        return self.g.add(kind, *inputs, name=name)

    def inverse(self):
        return self.op("rsqrt", self.shifted)


def nn_batch_normalization(b):
    m = b.op("mul", b.inverse(), b.gamma)
    return b.op("add", b.op("mul", b.x, m), b.op("sub", b.beta, b.op("mul", b.mean, m)), name="y")


def without_gamma(b):
    m = b.inverse()
    return b.op("add", b.op("mul", b.x, m), b.op("sub", b.beta, b.op("mul", b.mean, m)), name="y")


def without_beta(b):
    m = b.op("mul", b.gamma, b.inverse())
    return b.op("add", b.op("mul", m, b.x), b.op("neg", b.op("mul", m, b.mean)), name="y")


def difference(b):
    m = b.inverse()
    return b.op("sub", b.op("mul", b.x, m), b.op("mul", b.mean, m), name="y")


def keras_3(b):
    m = b.op("mul", b.inverse(), b.gamma)
    shift = b.op("add", b.op("mul", b.op("neg", b.mean), m), b.beta)
    return b.op("add", b.op("mul", b.x, m), shift, name="y")


def divided(b):
    m = b.op("div", b.gamma, b.op("sqrt", b.shifted))
    return b.op("add", b.op("sub", b.beta, b.op("mul", b.mean, m)), b.op("mul", b.x, m), name="y")


def centered(b):
    y = b.op("div", b.op("sub", b.x, b.mean), b.op("sqrt", b.shifted))
    return b.op("add", b.op("mul", y, b.gamma), b.beta, name="y")


def centered_rsqrt(b):
    y = b.op("mul", b.op("sub", b.x, b.mean), b.inverse())
    return b.op("add", b.beta, b.op("mul", b.gamma, y), name="y")


def centered_with_gamma_first(b):
    m = b.op("mul", b.op("reciprocal", b.op("sqrt", b.shifted)), b.gamma)
    return b.op("add", b.op("mul", b.op("sub", b.x, b.mean), m), b.beta, name="y")


CENTERED = (centered, centered_rsqrt, centered_with_gamma_first)
FORMS = (nn_batch_normalization, without_gamma, without_beta, difference, keras_3, divided)
SHAPES = ((C,), (1, 1, 1, C))


@pytest.mark.parametrize(
    ("form", "shape"),
    [*product(FORMS, (*SHAPES, ())), *product(CENTERED, SHAPES)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_forms(form, shape):
    b = Written(shape)
    b.g.outputs["y"] = form(b)
    run_pass(RecognizeBatchNorm(), b.g)
    assert [n.op for n in b.g.topological() if n.op != "const"] == ["input", "batch_norm"]
    assert b.g.nodes["y"].attrs["epsilon"] == 1e-3


@pytest.mark.parametrize("form", CENTERED, ids=lambda f: f.__name__)
def test_numbers_in_a_centered_form_stay_behind_the_batch_norm(form):
    """A product and a sum with single numbers need not be gamma and beta."""
    b = Written(())
    b.g.outputs["y"] = form(b)
    run_pass(RecognizeBatchNorm(), b.g)
    normed, *others = [n.op for n in b.g.topological() if n.op not in ("const", "input")]
    assert normed == "batch_norm" and others in (["mul", "add"], ["add"])


def test_golden():
    g = Graph("net")
    x = g.input("x", "float64", (None, 2))
    m = g.add("rsqrt", g.add("add", g.const(np.array([1.0, 4.0]), "var"), g.const(0.5, "eps")))
    shift = g.add("mul", g.const(np.array([3.0, 5.0]), "mu"), m)
    g.outputs["y"] = g.add("sub", g.add("mul", x, m), shift, name="bn")
    run_pass(RecognizeBatchNorm(), g)
    assert print_graph(g) == (
        'graph "net" {\n'
        "  %x = input {type=float64[?,2]}\n"
        "  %bn/gamma = const {value=float64[2]:[1.0,1.0]}\n"
        "  %bn/beta = const {value=float64[2]:[0.0,0.0]}\n"
        "  %bn/mean = const {value=float64[2]:[3.0,5.0]}\n"
        "  %bn/variance = const {value=float64[2]:[1.0,4.0]}\n"
        "  %bn = batch_norm(%x, %bn/gamma, %bn/beta, %bn/mean, %bn/variance) {epsilon=0.5}"
        " : float64[?,2]\n"
        '  return "y" = %bn\n'
        "}\n"
    )


def test_statistics_of_the_batch_are_refused():
    g = Graph("net")
    x = g.input("x", "float64", (8, C))
    mean = g.add("mean", x, name="mean", attrs={"axes": (0,), "keepdims": False})
    moment = g.add(
        "mean", g.add("squared_difference", x, mean), attrs={"axes": (0,), "keepdims": False}
    )
    m = g.add("rsqrt", g.add("add", moment, g.const(1e-3)))
    shift = g.add("sub", g.const(np.ones(C)), g.add("mul", mean, m))
    g.outputs["y"] = g.add("add", g.add("mul", x, m), shift, name="y")
    [(node, reason)] = reasons(run_pass(RecognizeBatchNorm(), g))
    assert node == "y" and "its mean `mean` (mean)" in reason and "training mode" in reason


def test_a_scale_does_not_join_a_batch_norm_that_others_use():
    b = Written()
    y = without_gamma(b)
    b.g.outputs["y"] = y
    b.g.outputs["z"] = b.op("mul", y, b.gamma, name="z")
    run_pass(RecognizeBatchNorm(), b.g)
    assert b.g.nodes["z"].op == "mul" and b.g.nodes["y"].op == "batch_norm"


def test_the_shift_of_a_hard_sigmoid_does_not_join():
    b = Written()
    shifted = b.op("add", without_gamma(b), b.g.const(3.0, "three"), name="shifted_by_3")
    b.g.outputs["y"] = b.op("relu6", shifted)
    run_pass(RecognizeBatchNorm(), b.g)
    assert b.g.nodes["shifted_by_3"].op == "add"


def test_a_plain_product_and_sum_is_left_alone():
    b = Written()
    b.g.outputs["y"] = b.op("add", b.op("mul", b.x, b.gamma), b.beta)
    assert not run_pass(RecognizeBatchNorm(), b.g).rewrites


def test_constants_are_shared_and_not_changed():
    b = Written()
    b.g.outputs["y"] = centered(b)
    b.g.outputs["gamma"] = b.gamma
    before = b.g.constant(b.gamma).copy()
    run_pass(RecognizeBatchNorm(), b.g)
    assert np.array_equal(b.g.constant("gamma"), before)


@pytest.mark.parametrize(("op", "gamma"), [("mul", 1e10), ("add", 1.0), ("sub", -1.0)])
def test_a_vector_that_makes_gamma_or_beta_infinite_is_not_merged(op, gamma):
    g = Graph("net")
    numbers = {"gamma": gamma, "beta": np.copysign(3e38, gamma), "mean": 0, "variance": 1}
    vectors = [g.const(np.full(C, value, np.float32), name) for name, value in numbers.items()]
    x = g.input("x", "float32", (2, 4, 4, C))
    y = g.add("batch_norm", x, *vectors, name="norm", attrs={"epsilon": 1e-3})
    large = g.const(np.full(C, 3e38, np.float32), "large")
    g.outputs["y"] = g.add(op, y, large, name="y")
    trace = Trace()
    RecognizeBatchNorm().run(g, trace)
    assert g.nodes["y"].op == op
    assert reasons(trace) == [("y", "gamma or beta of `norm` would not be finite")]
