"""Questions about a graph: signs, sources of a scale, first and last layers."""

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.types import QuantSpec
from qgraph.quant.topology import end_layers, is_nonnegative, sources, value_exponent
from tests.helpers.layers import WINDOW


def start() -> tuple[Graph, str]:
    g = Graph("net")
    return g, g.input("x", "float32", (None, 4, 4, 2))


def conv(g: Graph, x: str, name: str, **attrs) -> str:
    w = g.const(np.ones((1, 1, g.types[x].shape[3], 2), np.float32), "w")
    return g.add("conv2d", x, w, name=name, attrs={**WINDOW, **attrs})


def quantizer(g: Graph, x: str, exponent: int | None = 4) -> str:
    return g.add("quantize", x, name="q", attrs={"spec": QuantSpec(8, True, "input", exponent)})


@pytest.mark.parametrize(
    "op", ["relu", "relu6", "sigmoid", "hard_sigmoid", "softmax", "exp", "square"]
)
def test_never_negative(op):
    g, x = start()
    assert not is_nonnegative(g)(x)
    g.add(op, x, name="y")
    assert is_nonnegative(g)("y")


@pytest.mark.parametrize("op", ["tanh", "swish", "elu", "neg", "sub", "identity"])
def test_perhaps_negative(op):
    g, x = start()
    y = g.add(op, *([x, x] if op == "sub" else [x]), name="y")
    assert not is_nonnegative(g)(y)


@pytest.mark.parametrize(
    ("op", "mixed", "both"),
    [
        ("add", 0, 1),
        ("mul", 0, 1),
        ("maximum", 1, 1),
        ("minimum", 0, 1),
        ("sub", 0, 0),
        ("div", 0, 0),
    ],
)
def test_signs_of_two(op, mixed, both):
    g, x = start()
    r, s = g.add("relu", x), g.add("sigmoid", x)
    g.add(op, r, x, name="mixed")
    g.add(op, r, s, name="both")
    sign = is_nonnegative(g)
    assert (sign("mixed"), sign("both")) == (bool(mixed), bool(both))


def test_signs_through_what_moves():
    g, x = start()
    pads = {"paddings": ((0, 0), (1, 1), (0, 0), (0, 0))}
    r = g.add("pad", g.add("relu", x), attrs=pads)
    low = g.add("pad", r, attrs={**pads, "value": -1.0})
    joined = g.add("concat", r, r, attrs={"axis": 3})
    half = g.add("concat", r, low, attrs={"axis": 1})
    pool = g.add("max_pool", joined, attrs={"ksize": (2, 2), "strides": (2, 2), "padding": "same"})
    sign = is_nonnegative(g)
    assert [sign(v) for v in (r, low, joined, half, pool)] == [True, False, True, False, True]


def test_signs_of_constants_and_weights():
    g, x = start()
    g.const(np.float32([0, 1]), "up")
    g.const(np.float32([-1, 1]), "both")
    g.const(np.float32([np.nan, 1]), "nan")
    r = g.add("relu", x)
    conv(g, r, "layer")
    conv(g, r, "pool", pool=True)
    sign = is_nonnegative(g)
    values = ("up", "both", "nan", "layer", "pool")
    assert [sign(v) for v in values] == [True, False, False, False, True]


def test_sources_are_the_quantizers_behind_a_scale():
    g, x = start()
    a, b = quantizer(g, x), quantizer(g, x)
    total = g.add("relu", g.add("add", a, b))
    flat = g.add("reshape", g.add("concat", total, b, attrs={"axis": 3}), attrs={"shape": (-1,)})
    assert sources(g, flat) == [a, b] and sources(g, b) == [b]
    assert sources(g, x) == [] and sources(g, conv(g, a, "layer")) == []
    assert sources(g, g.add("mul", a, b)) == []


def test_a_bias_follows_the_scale_that_it_is_added_to():
    g, x = start()
    b = quantizer(g, g.const(np.ones(2, np.float32)))
    acc = g.add("bias_add", conv(g, quantizer(g, x), "layer"), b)
    assert sources(g, g.add("bias_add", acc, b)) == []
    q = quantizer(g, acc)
    assert sources(g, g.add("bias_add", q, b)) == [q]


def test_padding_with_a_value_leaves_the_grid():
    g, x = start()
    pads = {"paddings": ((0, 0), (1, 1), (0, 0), (0, 0))}
    q = quantizer(g, x)
    zero, one = g.add("pad", q, attrs=pads), g.add("pad", q, attrs={**pads, "value": 1.0})
    assert sources(g, zero) == [q] and sources(g, one) == []
    assert value_exponent(g.nodes[zero], {q: 4}) == 4
    assert value_exponent(g.nodes[one], {q: 4}) is None


def test_first_and_last_layers():
    g, x = start()
    pool = conv(g, x, "pool", pool=True)
    a, b = conv(g, pool, "first"), conv(g, pool, "other_first")
    middle = conv(g, g.add("relu", g.add("add", a, b)), "middle")
    norm = conv(g, middle, "norm", batch_norm=True)
    g.outputs["y"], g.outputs["z"] = conv(g, norm, "last"), conv(g, middle, "other_last")
    assert end_layers(g) == {"first", "other_first", "last", "other_last"}


def test_exponents_of_results():
    g, x = start()
    q = quantizer(g, x)
    y = conv(g, q, "layer")
    w = g.nodes[y].inputs[1]
    at = {q: 4, w: np.array([7, 9])}
    assert value_exponent(g.nodes[y], at).tolist() == [11, 13]
    assert value_exponent(g.nodes[y], {**at, w: 7}) == 11
    assert value_exponent(g.nodes[y], {q: 4}) is None
    assert value_exponent(g.nodes[g.add("relu6", q)], at) == 4
    assert value_exponent(g.nodes[g.add("tanh", q)], at) is None
    assert value_exponent(g.nodes["x"], {}) is None
