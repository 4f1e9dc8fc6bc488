"""The integer reference against layers computed elsewhere: every case, every code."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.types import Fixed, QuantSpec
from qgraph.numerics import dequantize, finest_exponent
from tests.helpers.vectors import vector_file

Arrays = dict[str, Any]


def codes_of(graph: Graph, x: Any, exponent: int, signed: bool) -> str:
    """An input whose quantizer gives just the codes `x`."""
    value = graph.input("x" if "x" not in graph.nodes else "y", "float64", (None, *x.shape[1:]))
    return quantize(graph, value, QuantSpec(8, signed, "input", exponent))


def quantize(graph: Graph, value: str, spec: QuantSpec) -> str:
    return graph.add("quantize", value, attrs={"spec": spec})


def constant(graph: Graph, codes: Any, exponent: int, bits: int, signed: bool = True) -> str:
    value = graph.const(dequantize(Fixed(codes.astype(np.int64), exponent)))
    return quantize(graph, value, QuantSpec(bits, signed, "weight", exponent))


def activated(graph: Graph, value: str, activation: str) -> str:
    return value if activation == "none" else graph.add(activation, value)


def conv(graph: Graph, case: Arrays, arrays: Arrays) -> tuple[str, str]:
    op = "depthwise_conv2d" if "depthwise" in case["case"] else "conv2d"
    x = codes_of(graph, arrays["x"], case["f_x"], case["x_signed"])
    filters = arrays["w"]
    w = constant(graph, filters, case["f_w"], case["weight_bits"])
    attrs = {
        "strides": (case["strides"],) * 2,
        "padding": case["padding"].lower(),
        "dilations": (1, 1),
    }
    acc = graph.add(op, x, w, attrs=attrs)
    z = quantize(graph, acc, QuantSpec(16, True, "internal", case["f_16"]))
    b = quantize(graph, graph.const(arrays["bias"]), QuantSpec(16, True, "bias", case["f_16"]))
    return acc, activated(graph, graph.add("bias_add", z, b), case["activation"])


def eltwise_add(graph: Graph, case: Arrays, arrays: Arrays) -> tuple[str, str]:
    x = codes_of(graph, arrays["x"], case["f_in"], True)
    y = codes_of(graph, arrays["y"], case["f_in"], case["y_signed"])
    total = graph.add("add", x, y)
    return total, activated(graph, total, case["activation"])


def leaky_relu(graph: Graph, case: Arrays, arrays: Arrays) -> tuple[str, str]:
    value = graph.input("x", "float64", arrays["u"].shape)
    u = quantize(graph, value, QuantSpec(16, True, "internal", case["f_16"]))
    assert finest_exponent(case["alpha"], 16, signed=True) == case["f_alpha"]
    alpha = graph.const(np.float64(case["alpha"]))
    slope = quantize(graph, alpha, QuantSpec(16, True, "constant", case["f_alpha"]))
    product = graph.add("mul", u, slope)
    v = quantize(graph, product, QuantSpec(16, True, "internal", case["f_16"]))
    return slope, graph.add("maximum", u, v)


def average_pool(graph: Graph, case: Arrays, arrays: Arrays) -> tuple[str, str]:
    x = codes_of(graph, arrays["x"], case["f_x"], False)
    k, channels = case["kernel"], arrays["x"].shape[-1]
    ones = constant(graph, np.ones((k, k, channels, 1)), 0, 1, signed=False)
    attrs = {
        "strides": (case["strides"],) * 2,
        "padding": case["padding"].lower(),
        "dilations": (1, 1),
    }
    total = graph.add("depthwise_conv2d", x, ones, attrs=attrs)
    r = constant(graph, arrays["reciprocal"], case["f_r"], case["r_bits"], signed=False)
    acc = graph.add("mul", total, r)
    return acc, acc


BUILD = {
    "conv": conv,
    "depthwise": conv,
    "add": eltwise_add,
    "leaky_relu": leaky_relu,
    "avg_pool": average_pool,
}


def test_every_layer_to_the_last_bit() -> None:
    cases = json.loads(vector_file("layers.json").read_text())
    archive = np.load(vector_file("layers.npz"))
    for case in cases:
        name = case["case"]
        arrays = {
            k.partition(".")[2]: archive[k] for k in archive.files if k.startswith(f"{name}.")
        }
        graph = Graph(name)
        inner, wide = BUILD[name.split("_", 1)[1]](graph, case, arrays)
        out = quantize(
            graph,
            wide,
            QuantSpec(8, case.get("out_signed", "leaky" in name), "activation", case["f_out"]),
        )
        graph.outputs["out"] = out
        graph.facts.add("calibrated")
        exponent = case.get("f_x", case.get("f_in", case.get("f_16")))
        feeds = {
            graph_input: np.ldexp(arrays[key].astype(np.float64), -exponent)
            for graph_input, key in zip(
                graph.inputs, [k for k in "xyu" if k in arrays], strict=True
            )
        }
        values = Reference(graph).run(feeds, [inner, out])
        wanted_inner = arrays.get("acc", arrays.get("alpha_code"))
        if wanted_inner is not None:
            assert np.array_equal(values[inner].codes, wanted_inner), f"{name}: inner codes differ"
        assert np.array_equal(values[out].codes, arrays["out"]), f"{name}: codes differ"
