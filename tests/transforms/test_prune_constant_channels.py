"""Constant channels leave the layers that make and read them, borders of padding included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT
from qgraph.transforms.prune_constant_channels import PruneConstantChannels
from tests.helpers.evaluate import random_feeds, reasons, run_pass
from tests.helpers.generators.graphs import random_graph
from tests.helpers.layers import WINDOW

RNG = np.random.default_rng(0)
GOLDEN = """\
graph "net" {
  %x = input {type=float32[?,5,6,3]}
  %first/weights = const {value=float32[1,1,3,1]:[1.0,1.0,1.0]}
  %first = conv2d(%x, %first/weights) {dilations=(1, 1), padding="same", strides=(1, 1)} : float32[?,5,6,1]
  %biased/kept = const {value=float32[1]:[1.0]}
  %biased = bias_add(%first, %biased/kept) : float32[?,5,6,1]
  %act = relu(%biased) : float32[?,5,6,1]
  %second/weights = const {value=float32[1,1,1,2]:[1.0,2.0]}
  %second = conv2d(%act, %second/weights) {dilations=(1, 1), padding="same", strides=(1, 1)} : float32[?,5,6,2]
  %second/bias = const {value=float32[2]:[16.0,28.0]}
  %end = bias_add(%second, %second/bias) : float32[?,5,6,2]
  return "y" = %end
}
"""  # noqa: E501
EXPLICIT = ((2, 0), (0, 1))


def network(dtype: str = "float64") -> Graph:
    g = Graph("net")
    g.input("x", dtype, (None, 5, 6, 3))
    g.facts.add("batch-norm-folded")
    return g


def layer(g: Graph, x: str, outputs: int, dead: tuple = (), bias: object = None, **attrs) -> str:
    """A convolution and a bias; filters of the channels `dead` are zero."""
    op, kernel = attrs.pop("op", "conv2d"), attrs.pop("kernel", 3)
    inputs = g.types[x].shape[-1]
    shape = (inputs, outputs) if op == "matmul" else (kernel, kernel, inputs, outputs)
    w = RNG.normal(size=shape)
    w.reshape(-1, w.shape[-1] if op != "depthwise_conv2d" else inputs * outputs)[:, list(dead)] = 0
    attrs = {} if op == "matmul" else WINDOW | attrs
    y = g.add(op, x, g.const(w.astype(g.types[x].dtype), "w"), attrs=attrs)
    shift = RNG.normal(size=g.types[y].shape[-1]) if bias is None else np.asarray(bias, float)
    return g.add("bias_add", y, g.const(shift.astype(g.types[x].dtype), "b"))


def widths(g: Graph) -> list[tuple]:
    """(inputs, outputs) of each layer's weights."""
    ops = ("conv2d", "depthwise_conv2d", "matmul")
    shapes = [g.types[n.inputs[1]].shape for n in g.topological() if n.op in ops]
    return [shape[-2:] for shape in shapes]


@pytest.mark.parametrize("between", ["relu", "relu6", "leaky", "sigmoid", "max", "avg", "sum"])
@pytest.mark.parametrize("padding", ["same", "valid", EXPLICIT])
def test_constants_go_and_the_function_stays(between: str, padding: object) -> None:
    g = network()
    y = layer(g, "x", 5, dead=(1, 3, 4), bias=[0.3, 2, -1, -0.5, 7])
    pool = {"ksize": (2, 2), "strides": (1, 1), "padding": "same"}
    if between == "leaky":
        y = g.add("maximum", y, g.add("mul", y, g.const(np.float64(0.1), "alpha")))
    elif between in ("max", "avg"):
        y = g.add(f"{between}_pool", g.add("relu", y), attrs=pool)
    elif between == "sum":
        y = g.add("add", y, layer(g, "x", 5, dead=(1, 3, 4)))
    else:
        y = g.add(between, y)
    g.outputs["y"] = layer(g, y, 2, padding=padding)
    PassManager(FLOAT).run(g)
    run_pass(PruneConstantChannels(), g)
    left = 2 if padding == "valid" else 3
    found = [w for w in widths(g) if w[1] != 1]
    assert found[0] == (3, left) and found[-1] == (left, 2)


def test_constants_at_a_border_become_one() -> None:
    """Corner, edge and middle see 4, 6 and 9 taps of a window of ones."""
    g = network()
    y = g.add("relu", layer(g, "x", 5, dead=(0, 1, 3, 4), bias=[3, 5, 0, -1, 9]))
    w = np.zeros((3, 3, 5, 1))
    w[..., 0, 0], w[..., 1, 0], w[..., 3, 0] = 1, 10, 1000
    g.outputs["y"] = g.add("conv2d", y, g.const(w, "v"), attrs=WINDOW)
    run_pass(PruneConstantChannels(), g)
    assert widths(g) == [(3, 1), (1, 1)]  # channels 2 and 4 are not read
    found = evaluate(g, random_feeds(g))["y"][0, ..., 0]
    assert (found[0, 0], found[0, 2], found[2, 2]) == pytest.approx((4 * 53, 6 * 53, 9 * 53))


def test_a_constant_that_nothing_reads_needs_no_stand_in() -> None:
    g = network()
    y = g.add("relu", layer(g, "x", 3, dead=(1,), bias=[0, 9, 0]))
    w = np.ones((3, 3, 3, 2)) * np.array([1, 0, 1])[:, None]
    g.outputs["y"] = g.add("conv2d", y, g.const(w, "v"), attrs=WINDOW)
    run_pass(PruneConstantChannels(), g)
    assert widths(g) == [(3, 2), (2, 2)]


def test_padding_of_its_own_ends_a_constant() -> None:
    g = network()
    y = g.add("relu", layer(g, "x", 4, dead=(0, 1), bias=[3, -5, 0, 0]))
    y = g.add("pad", y, attrs={"paddings": ((0, 0), (1, 1), (0, 2), (0, 0))})
    g.outputs["y"] = layer(g, y, 2, padding="valid")
    run_pass(PruneConstantChannels(), g)
    assert widths(g) == [(3, 3), (3, 2)]


def test_golden() -> None:
    g = network("float32")
    first = np.float32([[1, 0, 0]] * 3)[None, None]
    second = np.float32([[1, 2], [3, 4], [5, 6]])[None, None]
    y = g.add("conv2d", "x", g.const(first, "w"), name="first", attrs=WINDOW)
    y = g.add("bias_add", y, g.const(np.float32([1, 2, -1]), "b"), name="biased")
    y = g.add("relu", y, name="act")
    y = g.add("conv2d", y, g.const(second, "v"), name="second", attrs=WINDOW)
    g.outputs["y"] = g.add("bias_add", y, g.const(np.float32([10, 20]), "c"), name="end")
    trace = run_pass(PruneConstantChannels(), g, 1e-6)
    assert print_graph(g) == GOLDEN
    assert [(r.node, r.after) for r in trace.rewrites] == [
        ("first", "2 of 3 output channels removed"),
        ("second", "2 of 3 input channels removed"),
    ]


def test_flattened_channels_leave_at_every_position() -> None:
    g = network()
    y = g.add("relu", layer(g, "x", 3, dead=(1,), bias=[0, 2, 0]))
    y = g.add("reshape", y, attrs={"shape": (-1, 5 * 6 * 3)})
    g.outputs["y"] = layer(g, y, 4, op="matmul")
    run_pass(PruneConstantChannels(), g)
    assert widths(g) == [(3, 2), (60, 4)]


def test_depthwise_layers_lose_a_channel_on_both_sides() -> None:
    """0 may enter a padded one; a filter of zeros frees the layer before, and so on up."""
    g = network()
    y = g.add("relu", layer(g, "x", 4, dead=(1,), bias=[0, -2, 0, 0], kernel=1))
    y = g.add("relu6", layer(g, y, 4, kernel=1))
    y = g.add("relu", layer(g, y, 1, dead=(2,), op="depthwise_conv2d"))
    g.outputs["y"] = layer(g, y, 2, kernel=1)
    run_pass(PruneConstantChannels(), g)
    assert widths(g) == [(3, 3), (3, 3), (3, 1), (3, 2)]


@pytest.mark.parametrize(("padding", "left"), [("same", 3), ("valid", 2)])
def test_a_constant_into_a_depthwise_layer(padding: str, left: int) -> None:
    g = network()
    y = g.add("relu", layer(g, "x", 3, dead=(2,), bias=[0, 0, 4]))
    y = layer(g, y, 2, op="depthwise_conv2d", padding=padding, bias=RNG.normal(size=6))
    g.outputs["y"] = layer(g, y, 2, kernel=1)
    trace = run_pass(PruneConstantChannels(), g)
    assert widths(g) == [(3, left), (left, 2), (2 * left, 2)]
    reason = "they are not 0, so the zero padding makes them vary at the border"
    said = [("depthwise_conv2d", f"1 constant inputs stay: {reason}")]
    assert reasons(trace) == (said if padding == "same" else [])


def test_several_readers_and_concats() -> None:
    g = network()
    a = g.add("relu", layer(g, "x", 4, dead=(0, 2), bias=[1, 0, 3, 0]))
    b = layer(g, "x", 3, dead=(1,), bias=[0, -7, 0])
    joined = g.add("concat", a, b, attrs={"axis": 3})
    g.outputs["one"] = layer(g, joined, 2)
    g.outputs["two"] = layer(g, joined, 3, padding="valid")
    g.outputs["three"] = layer(g, a, 2)
    run_pass(PruneConstantChannels(), g)
    # -7 stands for all at the concat, 3 where the first is read alone.
    assert widths(g) == [(3, 3), (3, 3), (6, 2), (6, 3), (3, 2)]


def test_every_layer_keeps_a_channel() -> None:
    g = network()
    y = g.add("relu", layer(g, "x", 4, dead=(0, 1, 2, 3)))
    g.outputs["y"] = layer(g, y, 2)
    run_pass(PruneConstantChannels(), g)
    assert widths(g) == [(3, 1), (1, 2)]


def test_no_bias_to_put_it_into() -> None:
    g = network()
    y = g.add("sigmoid", layer(g, "x", 2, dead=(1,)))
    w = g.const(RNG.normal(size=(1, 1, 2, 2)), "v")
    y = g.add("conv2d", y, w, attrs={**WINDOW, "padding": "valid"}, name="last")
    g.outputs["y"], g.outputs["sum"] = y, g.add("relu", y)
    run_pass(PruneConstantChannels(), g)
    assert widths(g) == [(3, 1), (1, 2)] and g.outputs["y"] == "last/shifted"


def test_ops_that_stay_have_a_reason() -> None:
    g = network()
    seen = layer(g, "x", 4, dead=(0, 1))
    grouped = layer(g, "x", 4, dead=(2, 3))
    sliced = layer(g, "x", 4, dead=(1,))
    g.outputs["seen"] = seen
    w = g.const(RNG.normal(size=(3, 3, 2, 4)), "v")
    g.outputs["grouped"] = g.add("conv2d", grouped, w, attrs=WINDOW)
    g.outputs["added"] = layer(g, g.add("softmax", sliced, name="soft"), 2)
    before = print_graph(g)
    trace = run_pass(PruneConstantChannels(), g)
    assert print_graph(g) == before
    assert reasons(trace) == [
        ("conv2d", "2 constant channels stay: they are in output `seen`"),
        ("conv2d_1", "2 constant channels stay: `conv2d_3` has groups"),
        ("conv2d_2", "1 constant channels stay: `soft` (softmax) needs them"),
    ]


def kill(graph: Graph, seed: int, share: float) -> None:
    """Zero the filters of some output channels of every layer."""
    rng = np.random.default_rng(seed)
    for node in list(graph.topological()):
        if node.op in ("conv2d", "depthwise_conv2d") and not node.attrs.get("pool"):
            w = graph.constant(node.inputs[1]).copy()
            flat = w.reshape(*w.shape[:2], -1, 1) if node.op == "depthwise_conv2d" else w
            flat[:, :, rng.random(flat.shape[2]) < share / 3] = 0
            flat[..., rng.random(flat.shape[3]) < share] = 0
            made = graph.const(flat.reshape(w.shape), "killed")
            graph.replace(replace(node, inputs=(node.inputs[0], made)))


@pytest.mark.parametrize("seed", range(60))
def test_random_networks_keep_their_function(seed: int) -> None:
    graph = random_graph(seed, 14)
    if seed % 4:  # else inner values are outputs, whose channels nothing may touch
        name = "logits" if "logits" in graph.outputs else "map"
        graph.outputs = {name: graph.outputs[name]}
    PassManager(FLOAT).run(graph)
    kill(graph, seed, 0.5)
    run_pass(PruneConstantChannels(), graph, 1e-11)
