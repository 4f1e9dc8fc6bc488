"""Activations in every spelling that exporters write: each is one op, and one table."""

from math import pi, sqrt

import numpy as np
import pytest
import tensorflow as tf

from qgraph import quantize
from qgraph.frontends import load_graph_def
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.parsing import parse_graph
from qgraph.ir.printing import print_graph
from qgraph.passes import PassManager
from qgraph.quant.topology import is_nonnegative
from qgraph.recipes import FLOAT
from qgraph.retrain import keras_model
from qgraph.rewrite.functions import written_out
from qgraph.rewrite.trace import Trace
from qgraph.transforms.compose_functions import ComposeFunctions
from tests.helpers.evaluate import assert_same_function, reasons, run_pass
from tests.helpers.layers import WINDOW
from tests.helpers.op_writer import OpWriter
from tests.helpers.tf_graphs import graph_def_of, v1


class Writer(OpWriter):
    """Arithmetic on values of a graph; numbers become constants as `constant` makes them."""

    def __init__(self, graph: Graph, constant=np.float32) -> None:
        self.graph, self.constant = graph, constant

    def number(self, value: float) -> str:
        return self.graph.const(np.asarray(self.constant(value), np.float32), "c")


ROOT, SHAPE = sqrt(2 / pi), sqrt(2)


def cubes(w, x):
    yield "pow", w.pow(x, 3.0)
    yield "x*x*x", w.mul(w.mul(x, x), x)
    yield "x*(x*x)", w.mul(x, w.mul(x, x))
    yield "square", w.mul(w.square(x), x)


def gelus_tanh():
    """x/2 * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))"""

    def inner(w, x, cube):
        return w.tanh(w.mul(ROOT, w.add(x, w.mul(0.044715, cube(w, x)))))

    orders = {
        "(x*.5)*f": lambda w, x, f: w.mul(w.mul(x, 0.5), f),
        "x*(f*.5)": lambda w, x, f: w.mul(x, w.mul(f, 0.5)),
        "(x*f)*.5": lambda w, x, f: w.mul(w.mul(x, f), 0.5),
        ".5*(f*x)": lambda w, x, f: w.mul(0.5, w.mul(f, x)),
        "(x*f)/2": lambda w, x, f: w.div(w.mul(x, f), 2.0),
    }
    cube = {
        "pow": lambda w, x: w.pow(x, 3.0),
        "x*x*x": lambda w, x: w.mul(w.mul(x, x), x),
        "x*square": lambda w, x: w.mul(x, w.square(x)),
    }
    for order, whole in orders.items():
        for power, third in cube.items():
            yield (
                f"gelu tanh {order} {power}",
                lambda w, x, a=whole, b=third: a(w, x, w.add(1.0, inner(w, x, b))),
            )
    yield (
        "gelu tanh x*(a*x)*x",  # JAX
        lambda w, x: w.mul(
            x,
            w.mul(
                w.add(w.tanh(w.mul(w.add(x, w.mul(x, w.mul(x, w.mul(x, 0.044715)))), ROOT)), 1.0),
                0.5,
            ),
        ),
    )
    yield (
        "gelu tanh, factored",  # sqrt(2/pi) x (1 + 0.044715 x^2)
        lambda w, x: w.mul(
            w.mul(0.5, x),
            w.add(w.tanh(w.mul(w.mul(ROOT, x), w.add(w.mul(0.044715, w.mul(x, x)), 1.0))), 1.0),
        ),
    )


def gelus_erf():
    arguments = {
        "x/sqrt2": lambda w, x: w.div(x, SHAPE),
        "x*0.7071": lambda w, x: w.mul(x, 1 / SHAPE),
        "0.7071*x": lambda w, x: w.mul(1 / SHAPE, x),
        "x*rsqrt(2)": lambda w, x: w.mul(x, w.rsqrt(2.0)),
    }
    orders = {
        "(x*f)*.5": lambda w, x, f: w.mul(w.mul(x, f), 0.5),
        "(x*.5)*f": lambda w, x, f: w.mul(w.mul(x, 0.5), f),
        "x*(.5*f)": lambda w, x, f: w.mul(x, w.mul(0.5, f)),
        "x*(.5+.5*erf)": None,
    }
    for name, argument in arguments.items():
        for order, whole in orders.items():
            if whole is None:
                made = lambda w, x, a=argument: w.mul(  # noqa: E731
                    x, w.add(w.mul(w.erf(a(w, x)), 0.5), 0.5)
                )
            else:
                made = lambda w, x, a=argument, b=whole: b(  # noqa: E731
                    w, x, w.add(w.erf(a(w, x)), 1.0)
                )
            yield f"gelu erf {name} {order}", made
    yield (
        "gelu erfc",
        lambda w, x: w.mul(w.mul(0.5, x), w.sub(1.0, w.erf(w.mul(w.neg(x), 1 / SHAPE)))),
    )


OTHERS = {
    "swish": {
        "x*sigmoid": lambda w, x: w.mul(x, w.sigmoid(x)),
        "x/(1+exp(-x))": lambda w, x: w.div(x, w.add(1.0, w.exp(w.neg(x)))),
    },
    "sigmoid": {
        "1/(1+exp(-x))": lambda w, x: w.div(1.0, w.add(w.exp(w.neg(x)), 1.0)),
        "reciprocal": lambda w, x: w.reciprocal(w.add(1.0, w.exp(w.mul(x, -1.0)))),
        "tanh": lambda w, x: w.mul(0.5, w.add(1.0, w.tanh(w.mul(x, 0.5)))),
    },
    "tanh": {"sigmoid": lambda w, x: w.sub(w.mul(2.0, w.sigmoid(w.mul(2.0, x))), 1.0)},
    "softplus": {
        "log(1+exp)": lambda w, x: w.log(w.add(1.0, w.exp(x))),
        "log1p": lambda w, x: w.log1p(w.exp(x)),
        "max": lambda w, x: w.add(w.maximum(x, 0.0), w.log1p(w.exp(w.neg(w.abs(x))))),
    },
    "softsign": {"x/(1+|x|)": lambda w, x: w.div(x, w.add(w.abs(x), 1.0))},
    "elu": {
        "select": lambda w, x: w.select(
            w.greater_equal(x, 0.0), x, w.sub(w.exp(w.minimum(x, 0.0)), 1.0)
        ),
        "relu": lambda w, x: w.add(w.relu(x), w.expm1(w.minimum(x, 0.0))),
    },
    "hard_swish": {
        "relu6": lambda w, x: w.mul(x, w.mul(w.relu6(w.add(x, 3.0)), 1 / 6)),
        "clip": lambda w, x: w.div(w.mul(x, w.minimum(w.maximum(w.add(x, 3.0), 0.0), 6.0)), 6.0),
        "clip to 1": lambda w, x: w.mul(
            x, w.maximum(w.minimum(w.add(w.mul(x, 1 / 6), 0.5), 1.0), 0.0)
        ),
    },
    "composed": {  # functions without a name here
        "x*sigmoid(1.702x)": lambda w, x: w.mul(x, w.sigmoid(w.mul(1.702, x))),
        "mish": lambda w, x: w.mul(x, w.tanh(w.softplus(x))),
        "mish, written out": lambda w, x: w.mul(x, w.tanh(w.log(w.add(1.0, w.exp(x))))),
        "square": lambda w, x: w.square(x),
        "scaled tanh": lambda w, x: w.mul(1.7159, w.tanh(w.mul(2 / 3, x))),
        "tanh shrink": lambda w, x: w.sub(x, w.tanh(x)),
        "bent identity": lambda w, x: w.add(
            w.mul(w.sub(w.sqrt(w.add(w.mul(x, x), 1.0)), 1.0), 0.5), x
        ),
        "gaussian": lambda w, x: w.exp(w.neg(w.square(x))),
    },
    "abs": {"a plain one": lambda w, x: w.abs(x)},
}
SPELLINGS = {
    **{name: ("gelu", write) for name, write in [*gelus_tanh(), *gelus_erf()]},
    **{
        f"{op} {name}": (op, write)
        for op, spellings in OTHERS.items()
        for name, write in spellings.items()
    },
}


def network(write, constant=np.float32, dtype: str = "float32") -> Graph:
    """A dense layer, the activation and another dense layer."""
    rng = np.random.default_rng(0)
    g = Graph("net")
    w = Writer(g, constant)
    x = g.input("x", dtype, (None, 6))
    h = w.matmul(x, g.const(rng.normal(size=(6, 8)).astype(dtype), "first"))
    g.outputs["y"] = w.matmul(write(w, h), g.const(rng.normal(size=(8, 3)).astype(dtype), "last"))
    return g


def recognized(g: Graph) -> list[str]:
    before = g.copy()
    PassManager(FLOAT).run(g)
    assert_same_function(before, g, tolerance=1e-5)
    return [n.op for n in g.topological() if n.op not in ("input", "const", "matmul")]


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_one_op(name) -> None:
    op, write = SPELLINGS[name]
    assert recognized(network(write)) == [op]


CONSTANTS = {
    "of one element": lambda v: np.full((1,), v),
    "of rank 2": lambda v: np.full((1, 1), v),
    "as wide as the tensor": lambda v: np.full((8,), v),
    "rounded to float16": np.float16,
}


@pytest.mark.parametrize("kind", CONSTANTS)
@pytest.mark.parametrize("name", [n for n in SPELLINGS if n.startswith("gelu") and "pow" not in n])
def test_constants_in_any_form_are_one_op(name, kind) -> None:
    (found,) = recognized(network(SPELLINGS[name][1], CONSTANTS[kind]))
    # What is not the function to float32 keeps its own numbers.
    assert found in (("gelu", "composed") if kind == "rounded to float16" else ("gelu",))


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_of_tensorflow(approximate) -> None:
    w = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)

    def build():
        x = v1.placeholder("float32", (None, 6), "x")
        return tf.matmul(tf.nn.gelu(tf.matmul(x, w), approximate), w)

    assert recognized(load_graph_def(graph_def_of(build))) == ["gelu"]


# -- what is made of it -----------------------------------------------------------------------

X = {"x": np.random.default_rng(3).normal(size=(64, 6)).astype(np.float32) * 2}
ONE_TABLE = ("gelu tanh x*(a*x)*x", "composed mish, written out", "composed x*sigmoid(1.702x)")


@pytest.mark.parametrize("name", ONE_TABLE)
def test_a_table_holds_the_composition(name) -> None:
    graph = network(SPELLINGS[name][1])
    made = quantize(graph, X, effort="plain")
    ops = [n.op for n in made.graph.topological()]
    assert ops.count("lookup") == 1 and "mul" not in ops
    (table,) = (n for n in made.graph.topological() if n.op == "lookup")
    domain, spec = table.attrs["domain"], table.attrs["spec"]
    codes = np.arange(domain.lo, domain.hi + 1)
    given = np.ldexp(codes.astype(np.float64), -domain.exponent if domain.exponent else 0)
    assert len(given) == 2**domain.bits and spec.bits == 8
    assert made.facts.agreement.sqnr > 30


def test_a_trained_graph_has_the_same_numbers(tmp_path) -> None:
    """`composed` and gelu have gradients, in TensorFlow's ops."""
    for name in ("composed mish", "gelu erf x/sqrt2 (x*f)*.5", "gelu tanh (x*.5)*f pow"):
        made = quantize(network(SPELLINGS[name][1]), X, mode="retrain")
        model = keras_model(made)
        found = made.reference().outputs(X)["y"]
        np.testing.assert_array_equal(np.asarray(model(X["x"])).reshape(found.shape), found)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(X["x"]) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        assert any(g is not None and np.abs(g.numpy()).max() > 0 for g in gradients)


def test_text_carries_it() -> None:
    g = network(SPELLINGS["composed mish, written out"][1])
    PassManager(FLOAT).run(g)
    constants = {n.name: n.attrs["value"] for n in g.nodes.values() if n.op == "const"}
    assert print_graph(parse_graph(print_graph(g), constants)) == print_graph(g)


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_written_out_function_is_the_same(name) -> None:
    g = network(SPELLINGS[name][1])
    PassManager(FLOAT).run(g)
    apart = written_out(g)
    assert all(n.op not in ("composed", "gelu") for n in apart.nodes.values())
    found, wanted = evaluate(apart, X), evaluate(g, X)
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "never_negative"),
    [("composed square", True), ("composed gaussian", True), ("composed mish", False)],
)
def test_the_sign_of_a_composition_is_known(name, never_negative) -> None:
    g = network(SPELLINGS[name][1])
    PassManager(FLOAT).run(g)
    (node,) = (n for n in g.topological() if n.op == "composed")
    assert is_nonnegative(g)(node.name) is never_negative


def test_a_clip_in_front_stays_in_front() -> None:
    """ReLU is exact on codes, and what comes behind it needs no table for negative ones."""
    assert recognized(network(lambda w, x: w.square(w.relu(x)))) == ["relu", "composed"]


# -- what stays -------------------------------------------------------------------------------


def unchanged(g: Graph) -> None:
    g.facts.add("batch-norm-folded")
    assert not run_pass(ComposeFunctions(), g).rewrites


def test_arithmetic_that_integers_have_stays() -> None:
    unchanged(network(lambda w, x: w.minimum(w.relu(w.add(w.mul(x, 2.0), 1.0)), 5.0)))
    unchanged(network(lambda w, x: w.tanh(w.add(x, 1.0))))
    unchanged(network(lambda w, x: w.neg(w.div(w.sub(x, 1.0), 3.0))))
    unchanged(network(lambda w, x: w.tanh(w.div(x, 3.0))))


def test_what_leaves_the_network_stays_float() -> None:
    g = Graph("net")
    w = Writer(g)
    x = g.input("x", "float32", (None, 6))
    h = w.matmul(x, g.const(np.ones((6, 8), np.float32), "first"))
    g.outputs["y"] = w.mul(w.exp(h), 2.0)
    unchanged(g)


def test_a_softmax_written_out_stays() -> None:
    def softmax(w, x):
        e = w.exp(w.sub(x, w.reduce_max(x, axes=(1,), keepdims=True)))
        return w.div(e, w.sum(e, axes=(1,), keepdims=True))

    unchanged(network(softmax))


def test_two_tensors_are_no_function_of_one() -> None:
    def gated(w, x):
        first = w.slice(x, begin=(None, 0), end=(None, 4), strides=(1, 1))
        second = w.slice(x, begin=(None, 4), end=(None, 8), strides=(1, 1))
        return w.concat(*[w.mul(first, w.sigmoid(second))] * 2, axis=1)

    unchanged(network(gated))


def test_what_is_too_steep_for_a_table_is_refused() -> None:
    g = network(lambda w, x: w.add(w.tanh(w.mul(x, 100.0)), w.sigmoid(x)))
    trace = Trace()
    ComposeFunctions().run(g, trace)
    assert [reason for _, reason in reasons(trace)] == [
        "stays float: this function of each element is too steep for a table"
    ]


def test_jumps_are_not_steep() -> None:
    for function in (
        lambda w, x: w.mul(w.sign(x), w.sigmoid(x)),
        lambda w, x: w.select(w.greater(x, 0.3), x, 0.0),
        lambda w, x: w.round(w.mul(x, 0.2)),
    ):
        g = network(function)
        ComposeFunctions().run(g, Trace())
        assert sum(n.op == "composed" for n in g.nodes.values()) == 1


def test_a_function_that_is_finite_only_with_its_start_takes_it() -> None:
    g = network(lambda w, x: w.log(w.add(w.relu(x), 0.1)))
    ComposeFunctions().run(g, Trace())
    (node,) = [n for n in g.nodes.values() if n.op == "composed"]
    assert [step[0] for step in node.attrs["steps"]] == ["relu", "add", "log"]


@pytest.mark.parametrize(
    ("axes", "leaves", "composed"),
    [
        ((1, 2), False, 1),
        ((1, 2), True, 0),
        ((3,), False, 0),
        ((-1,), False, 0),
        ((1, 3), False, 0),
    ],
)
def test_a_mean_over_places_takes_codes_and_one_over_channels_does_not(axes, leaves, composed):
    g = Graph("net")
    w = Writer(g)
    x = g.input("x", "float32", (None, 4, 4, 3))
    window = WINDOW
    h = w.conv2d(x, g.const(np.ones((1, 1, 3, 3), np.float32), "first"), **window)
    y = w.mean(w.mul(h, w.sigmoid(h)), axes=axes, keepdims=False)
    if not leaves:
        size = {(1, 2): 3, (1, 3): 4}.get(axes, 16)
        y = w.reshape(y, shape=(-1, size)) if size == 16 else y
        y = w.matmul(y, g.const(np.ones((size, 2), np.float32), "second"))
    g.outputs["y"] = y
    g.facts.add("batch-norm-folded")
    run_pass(ComposeFunctions(), g)
    assert sum(node.op == "composed" for node in g.nodes.values()) == composed


def test_what_has_no_value_somewhere_is_refused() -> None:
    g = network(lambda w, x: w.sqrt(w.add(x, 1.0)))
    trace = Trace()
    ComposeFunctions().run(g, trace)
    assert [reason for _, reason in reasons(trace)] == [
        "stays float: this function of each element is not finite everywhere"
    ]
    assert recognized(network(lambda w, x: w.sqrt(w.relu(x)))) == ["relu", "composed"]
