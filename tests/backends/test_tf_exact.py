"""The emitted TensorFlow graph, as TensorFlow executes it, equals the integer reference."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from qgraph.backends.tf.builder import type_number
from qgraph.backends.tf.emission import FEW_ELEMENTS
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.exact.bounds import bounds
from qgraph.exact.sums import FLOAT32_EXACT
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.ops.activation import POINTWISE
from qgraph.ir.types import Overflow, QuantSpec, Role, Rounding
from tests.helpers.evaluate import random_feeds
from tests.helpers.layers import WINDOW
from tests.helpers.quantized import (
    INT8,
    INT32_BIAS,
    PROFILES,
    assert_tf_equals_reference,
    quantize,
    random_network,
)

RNG = np.random.default_rng(5)
EXPLICIT = ((1, 2), (0, 2))


def weights(g: Graph, *shape: int) -> str:
    scale = np.sqrt(np.prod(shape[:-1]))
    return g.const((RNG.normal(size=shape) / scale).astype(np.float32), "w")


def conv(g: Graph, x: str, shape=(3, 3, 4, 4), op="conv2d", bias=True, **attrs) -> str:
    y = g.add(op, x, weights(g, *shape), attrs={**WINDOW, **attrs})
    bias_of = RNG.normal(size=g.types[y].shape[-1]).astype(np.float32)
    return g.add("bias_add", y, g.const(bias_of, "b")) if bias else y


def after(op: str, **attrs):
    """`op` on codes, and a layer behind it."""

    def build(g: Graph, x: str) -> str:
        y = g.add(op, g.add("relu", conv(g, x)), attrs=attrs)
        shape = g.types[y].shape
        return conv(g, y, (1, 1, shape[3], 2)) if len(shape) == 4 else y

    return build


def table(function: str, **attrs):
    return lambda g, x: g.add(function, conv(g, x), attrs=attrs)


def layer(**attrs):
    return lambda g, x: conv(g, x, **attrs)


def depthwise(**attrs):
    return partial(conv, op="depthwise_conv2d", **{"shape": (3, 3, 4, 1), **attrs})


def two(op: str):
    return lambda g, x: g.add("relu", g.add(op, conv(g, x), g.add("relu6", conv(g, x))))


def attention(g: Graph, x: str) -> str:
    flat = {"shape": (-1, 4)}
    a = g.add("reshape", conv(g, x), attrs=flat)
    b = g.add("transpose", g.add("reshape", conv(g, x), attrs=flat), attrs={"perm": (1, 0)})
    return g.add("matmul", a, b)


def leaky(g: Graph, x: str) -> str:
    y = conv(g, x)
    return g.add("maximum", y, g.add("mul", y, g.const(np.float32(0.3), "alpha")))


def same_pool(g: Graph, x: str) -> str:
    ones = g.const(np.ones((3, 3, 4, 1), np.float32), "ones")
    attrs = {**WINDOW, "padding": ((1, 1), (1, 1)), "pool": True}
    y = g.add("depthwise_conv2d", g.add("relu", conv(g, x)), ones, attrs=attrs)
    edge = np.array([3, *[2] * 6, 3])[:, None] * np.array([3, *[2] * 4, 3])[None]
    return g.add(
        "mul", y, g.const((1 / edge)[None, ..., None].astype(np.float32), "r"), attrs={"pool": True}
    )


def join_with_constant(g: Graph, x: str) -> str:
    c = g.const(RNG.normal(size=(2, 8, 6, 1)).astype(np.float32), "c")
    return g.add("sigmoid", g.add("concat", g.add("relu", conv(g, x)), c, attrs={"axis": 3}))


RESIZE = {"size": (11, 5)}
CASES = {
    "grouped": layer(shape=(3, 3, 2, 6)),
    "dilated": layer(dilations=(2, 3)),
    "unequal strides": layer(strides=(1, 2)),
    "explicit pads": layer(padding=EXPLICIT, strides=(2, 2)),
    "one by one, strided": layer(shape=(1, 1, 4, 3), strides=(2, 3)),
    "no bias": layer(bias=False),
    "depthwise": depthwise(strides=(2, 2)),
    "depthwise, multiplier": depthwise(shape=(3, 2, 4, 3)),
    "depthwise, dilated same": depthwise(dilations=(2, 1)),
    "depthwise, dilated valid": depthwise(dilations=(3, 2), padding="valid"),
    "depthwise, unequal same": depthwise(strides=(2, 1)),
    "depthwise, unequal valid": depthwise(strides=(1, 3), padding="valid"),
    "depthwise, explicit": depthwise(padding=EXPLICIT, strides=(2, 2), dilations=(1, 2)),
    "max pool": after("max_pool", ksize=(2, 3), strides=(2, 1), padding="same"),
    "max pool, explicit": after("max_pool", ksize=(3, 3), strides=(2, 2), padding=EXPLICIT),
    "average pool, same": same_pool,
    "reduce max": after("reduce_max", axes=(1, 2), keepdims=True),
    "resize": after("resize_nearest", **RESIZE),
    "resize, corners": after("resize_nearest", **RESIZE, align_corners=True),
    "resize, half pixel": after("resize_nearest", **RESIZE, half_pixel=True),
    "space to depth": after("space_to_depth", block=2),
    "depth to space": after("depth_to_space", block=2),
    "space to batch": after("space_to_batch", block=(3, 2), paddings=((0, 1), (1, 1))),
    "batch to space": after("batch_to_space", block=(2, 1), crops=((1, 0), (0, 2))),
    "slice": after("slice", begin=(0, 1, -1, None), end=(2, -1, None, None), strides=(1, 2, -2, 1)),
    "reflect": after("pad", paddings=((0, 0), (1, 2), (2, 1), (0, 0)), mode="reflect"),
    "symmetric": after("pad", paddings=((0, 0), (1, 2), (2, 1), (0, 0)), mode="symmetric"),
    "pad with a value": after("pad", paddings=((0, 0), (1, 2), (0, 0), (0, 0)), value=0.7),
    "transpose": after("transpose", perm=(0, 2, 1, 3)),
    "reshape": after("reshape", shape=(-1, 6, 8, 4)),
    "expand": after("expand_dims", axis=2),
    "relu6 off the grid": lambda g, x: g.add("relu6", conv(g, g.add("mul", x, x))),
    "add": two("add"),
    "sub": two("sub"),
    "mul": two("mul"),
    "maximum": two("maximum"),
    "minimum": two("minimum"),
    "matmul of two": attention,
    "leaky": leaky,
    "joined with a constant": join_with_constant,
    **{f"table {name}": table(name) for name in POINTWISE},
    "table elu 0.5": table("elu", alpha=0.5),
    "table gelu tanh": table("gelu", approximate=True),
    "table of values": table("tabulated", log2_steps=2, first=-2, values=(0.5, -1.0, 2.0, 0.25)),
}


def network(case: str) -> Graph:
    g = Graph("net")
    x = g.input("x", "float32", (None if case != "joined with a constant" else 2, 8, 6, 4))
    g.outputs["y"] = CASES[case](g, x)
    return g


def feeds_of(graph: Graph, batch: int = 2, scale: float = 3.0) -> dict:
    """Larger numbers than in calibration, so that codes clip and wrap."""
    feeds = random_feeds(graph, seed=1, batch=batch)
    return {name: array * array.dtype.type(scale) for name, array in feeds.items()}


@pytest.mark.parametrize("profile", ["int8", "per-channel-int32", "wrap"])
@pytest.mark.parametrize("case", CASES)
def test_every_layer(case, profile):
    graph = quantize(network(case), PROFILES[profile])
    assert assert_tf_equals_reference(graph, feeds_of(graph))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", [2, 5, 39])
def test_random_networks(seed, profile):
    graph = random_network(seed, profile, layers=10)
    assert assert_tf_equals_reference(graph, feeds_of(graph, batch=3))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("scaled", ["mul", "bias_add", "add"])
def test_values_clipped_at_both_ends(profile, scaled):
    """As observations are: scaled, then clipped; a clip has no scale to give to others."""
    g = Graph("net")
    x = g.input("x", "float32", (None, 4))
    constant = g.const(np.array([0.5, 3, 40, 1], np.float32), "c")
    y = g.add("matmul", x, g.const(np.eye(4, dtype=np.float32), "w")) if scaled != "mul" else x
    y = g.add(scaled, y, constant)
    y = g.add("minimum", y, g.const(np.float32(10), "high"))
    g.outputs["y"] = g.add("maximum", g.const(np.float32(-10), "low"), y)
    quantize(g, PROFILES[profile])
    assert assert_tf_equals_reference(g, feeds_of(g))


@pytest.mark.parametrize("scale", [1e9, 1e17, 1e30])
def test_wrapping_of_any_size(scale):
    graph = quantize(network("leaky"), PROFILES["wrap"])
    assert assert_tf_equals_reference(graph, feeds_of(graph, scale=scale))


def test_a_left_shift_past_62_bits_stays_there():
    """Products of 2^43 and more, shifted left by 20: every form keeps them at 2^62, then wraps."""
    g = Graph("net")
    x = g.input("x", "float32", (None, 2))
    q = g.add("quantize", x, attrs={"spec": QuantSpec(27, True, "activation", 0)})
    wide = g.add("mul", q, q, name="wide")
    spec = QuantSpec(24, True, "activation", 20, overflow="wrap")
    g.outputs["y"] = g.add("quantize", wide, attrs={"spec": spec})
    g.facts.add("calibrated")
    feeds = {"x": np.float32([[2**25, 1], [2**23 + 1, 3], [-(2**22) - 1, 2**21 + 3]])}
    assert assert_tf_equals_reference(g, feeds)


@pytest.mark.parametrize("biased", [True, False])
def test_convolution_and_depthwise_of_one_channel(biased):
    """Both kinds with the same size in one process, because oneDNN may use one's primitive for the
    other.
    """
    kinds = ("conv2d", "depthwise_conv2d")
    for op, bias in zip(kinds if biased else kinds[::-1], (True, False), strict=True):
        g = Graph("net")
        x = g.input("x", "float32", (None, 7, 5, 1))
        g.outputs["y"] = conv(g, x, (1, 1, 1, 1), op=op, bias=bias)
        quantize(g, INT32_BIAS)
        for batch in (1, 2, 4):
            assert assert_tf_equals_reference(g, feeds_of(g, batch))


# -- layers past float32 --------------------------------------------------------------------


def deep(g: Graph, x: str) -> str:
    flat = g.add("reshape", x, attrs={"shape": (-1, 4096)})
    return g.add("matmul", flat, g.const(RNG.uniform(0, 1, (4096, 16)).astype(np.float32), "w"))


def global_average(g: Graph, x: str) -> str:
    r = g.const(np.full((64, 64, 16, 1), 1 / 4096, np.float32), "r")
    return g.add("depthwise_conv2d", x, r, attrs={**WINDOW, "padding": "valid", "pool": True})


def leaky_product(g: Graph, x: str) -> str:
    alpha = g.const(np.float32(0.3), "alpha")
    return g.add("maximum", x, g.add("mul", x, alpha))


@pytest.mark.parametrize(
    ("build", "wide"),
    [(deep, "matmul"), (global_average, "depthwise_conv2d"), (leaky_product, "mul")],
)
def test_layers_past_float32_are_exact(build, wide):
    g = Graph("net")
    g.outputs["y"] = build(g, g.input("x", "float32", (None, 64, 64, 16)))
    # 16 bits out of the layer and a thousand sums: one in a hundred is so near to a rounding
    # boundary that float32's error shows.
    low = -1 if wide == "mul" else 0
    feeds = {"x": RNG.uniform(low, 8, (64, 64, 64, 16)).astype(np.float32)}
    quantize(g, replace(INT8, bits=replace(INT8.bits, activation=16, input=16)), feeds)
    found = bounds(g)
    assert found[wide].magnitude > FLOAT32_EXACT and found[wide].exact_in == "float64"
    assert assert_tf_equals_reference(g, feeds)
    small = {name: replace(bound, magnitude=0) for name, bound in found.items()}
    with pytest.raises(AssertionError, match="differ from the reference"):
        assert_tf_equals_reference(g, feeds, small)


def test_bias_codes_past_float32_are_exact():
    g = Graph("net")
    x = g.input("x", "float32", (None, 4))
    y = g.add("matmul", x, g.const(np.full((4, 2), 2.0**-20, np.float32), "w"))
    g.outputs["y"] = g.add("bias_add", y, g.const(np.array([1e4, -3.7], np.float32), "b"))
    quantize(g, INT32_BIAS)
    assert assert_tf_equals_reference(g, feeds_of(g))


def test_without_onednn():
    """The same, in a separate process: TensorFlow reads the switch once."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    subprocess.run(
        [*command, "-k", "(test_every_layer and int8) or past_float32 or (random and narrow)"],
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"},
        capture_output=True,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("overflow", list(Overflow))
@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("exponent", [-20, 4])
def test_subnormal_inputs_are_numbers_below_and_above_zero(rounding, overflow, exponent, dtype):
    """TensorFlow's threads flush them to 0, which the floor of a number below 0 is not."""
    tiny = np.finfo(dtype).tiny
    sizes = np.array([np.ldexp(tiny, -20), tiny / 2, tiny, 1e-30, 1.0, 0.0], dtype)
    x = np.concatenate([sizes, -sizes])
    g = Graph("one")
    spec = QuantSpec(8, True, Role.ACTIVATION, exponent, rounding, overflow)
    g.outputs["y"] = g.add("quantize", g.input("x", dtype, (None,)), attrs={"spec": spec})
    for many in (1, 10_000):  # one thread, and several
        found = TFProgram(emit_graph_def(g)).run({"x": np.repeat(x, many)}, ["y"])[0]
        np.testing.assert_array_equal(found, np.repeat(evaluate(g, {"x": x})["y"], many))


@pytest.mark.parametrize("profile", ["int8", "per-channel", "int32-bias"])
@pytest.mark.parametrize(
    "make", [layer(), depthwise(shape=(3, 3, 4, 4))], ids=["conv", "depthwise"]
)
def test_large_weights_are_stored_as_codes(profile, make) -> None:
    graph = Graph("net")
    x = graph.input("x", "float32", (2, 8, 6, 4))
    graph.outputs["y"] = make(graph, x)
    feeds = random_feeds(graph)
    made = quantize(graph, PROFILES[profile])
    nodes = emit_graph_def(made).node
    tensors = [node.attr["value"].tensor for node in nodes if node.op == "Const"]
    held = [tensor for tensor in tensors if len(tensor.tensor_content) >= FEW_ELEMENTS]
    assert [tensor.dtype for tensor in held] == [type_number("int8")]
    assert_tf_equals_reference(made, feeds)
