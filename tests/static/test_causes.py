"""Reasons come from numbers: each network here has one thing wrong with it."""

from __future__ import annotations

import re

import numpy as np

from qgraph.exact.compare import measure
from qgraph.ir.graph import Graph
from qgraph.quant.plan import Plan
from qgraph.quant.profile import load_profile, parse_profile
from qgraph.rewrite.trace import Trace
from qgraph.static.analysis import analysis
from qgraph.static.build import build
from qgraph.static.causes import causes
from qgraph.static.sensitivity import parts_of

INT8 = load_profile("graffitist-int8")
RNG = np.random.default_rng(0)
X = {"x": RNG.normal(size=(64, 8)).astype(np.float32)}


def layer(w, bias=None, x="x", name="fc", graph: Graph | None = None) -> Graph:
    g = graph or Graph("net")
    if not g.inputs:
        g.input("x", "float32", (None, 8))
    value = g.add("matmul", x, g.const(np.asarray(w, np.float32), "w"), name=name)
    if bias is not None:
        value = g.add("bias_add", value, g.const(np.asarray(bias, np.float32), "b"))
    g.outputs["y"] = value
    return g


def reasons(graph: Graph, data=X, profile=INT8, part: str = "fc", method: str = "max"):
    """(where, text) by cost."""
    floating, quantized = build(graph, profile, Plan(method=method), data, Trace())
    measured = measure(quantized, floating, data)
    of = next(p for p in parts_of(quantized) if p.name == part)
    return [(c.where, c.text) for c in causes(quantized, floating, of, measured, data)]


def normal(*shape: int):
    return RNG.normal(size=shape)


def test_nothing_is_wrong() -> None:
    assert reasons(layer(normal(8, 8), normal(8))) == []


def test_an_input_channel_far_above_the_others() -> None:
    w = normal(8, 8)
    w[3] *= 200 / np.abs(w[3]).max()
    (where, text), *_ = reasons(layer(w))
    assert where == "weights" and text.startswith("input channel 3 has weights up to 200, ")
    assert re.search(r"\d+ % of its weights round to zero", text) and "vary" not in text


def test_the_channel_behind_it_is_nearly_constant() -> None:
    w, data = normal(8, 8), {"x": X["x"] * np.where(np.arange(8) == 3, 1e-3, 1).astype("f4")}
    w[3] *= 200
    (_, text), *_ = reasons(layer(w), data)
    assert re.search(
        r"its input hardly varies \(0\.\d+ % of the median channel's deviation\)", text
    )
    data["x"][:, 3] = 1
    (_, text), *_ = reasons(layer(w), data)
    assert text.endswith("its input is constant")


def test_an_output_channel_is_no_trouble_with_scales_of_their_own() -> None:
    w = normal(8, 8)
    w[:, 5] *= 100
    found = reasons(layer(w))
    assert {text.split(" has")[0] for _, text in found} >= {"output channel 5"}
    own = parse_profile({"name": "own", "per_channel": True})
    assert not [t for where, t in reasons(layer(w), profile=own) if where == "weights"]


def test_biases_that_saturate() -> None:
    narrow = parse_profile({"name": "narrow", "bits": {"bias": 8, "internal": 16}})
    graph = layer(normal(8, 8), normal(8))
    floating, quantized = build(graph, narrow, Plan(method="max"), X, Trace())
    held = quantized.nodes["b"].attrs["value"].copy()
    held[2] = 1e4
    quantized.set_attrs("b", value=held)
    measured = measure(quantized, floating, X)
    part = next(p for p in parts_of(quantized) if p.name == "fc")
    found = causes(quantized, floating, part, measured, X)
    assert found[0].where == "weights" and found[0].text.startswith("1 of 8 biases saturate at ")


def test_a_scale_that_makes_room_for_the_bias_leaves_weights_few_codes() -> None:
    exact_bias = load_profile("int32-bias")
    found = [t for _, t in reasons(layer(normal(8, 8) * 1e-5, normal(8) * 100), profile=exact_bias)]
    assert any(
        re.fullmatch(r"its largest code is \d+ of 127: .* of 8 bits unused", t) for t in found
    )


def test_a_scale_group_names_the_member_that_made_it_coarse() -> None:
    g = layer(normal(8, 8) * 0.01, name="small")
    small = g.outputs["y"]
    g = layer(normal(8, 8) * 10, name="large", graph=g)
    g.outputs["y"] = g.add("add", small, g.outputs["y"], name="join")
    found = [text for where, text in reasons(g, part="small") if where == "output"]
    assert len(found) == 1
    assert re.fullmatch(
        r"its output's step is \d+ bits coarser than it needs: "
        r"it shares the scale of `large` through add `join`", found[0]
    )  # fmt: skip
    assert not [text for _, text in reasons(g, part="large") if "coarser" in text]


def test_a_tail_that_is_kept_and_one_that_is_clipped() -> None:
    data = {"x": np.abs(normal(4096, 8)).astype(np.float32)}
    data["x"][0, 0] = 100
    graph = layer(np.eye(8))
    graph.outputs["y"] = graph.add("relu", graph.outputs["y"])
    kept = reasons(graph, data)
    assert any("its output has a long tail: up to 100, but 99.9% of it below" in t for _, t in kept)
    clipped = reasons(graph, data, method="percentile")
    assert any(re.search("of its output is clipped, which costs .* dB", t) for _, t in clipped)
    assert not any("clipped" in t for _, t in kept)


def test_clipping_that_pays_is_no_reason() -> None:
    data, few = (
        {"x": normal(4096, 8).astype(np.float32)},
        parse_profile({"bits": {"activation": 4}}),
    )
    data["x"][0, 0] = 9  # the only number beyond 8: a threshold of 16 would not pay
    graph = layer(np.eye(8))
    floating, quantized = build(graph, few, Plan(method="mse"), data, Trace())
    statistics = measure(quantized, floating, data).statistics["fc/q4"]
    assert statistics.below + statistics.above > 0
    assert not any("clipped" in t for _, t in reasons(graph, data, few, method="mse"))


def test_analysis_puts_the_guilty_stage_first() -> None:
    w = normal(8, 8)
    w[3] *= 300
    data = {"x": X["x"] * np.where(np.arange(8) == 3, 1e-3, 1).astype("f4")}
    graph = layer(w, normal(8), name="bad")
    graph.outputs["z"] = graph.outputs.pop("y")
    floating, quantized = build(graph, INT8, Plan(method="max"), data, Trace())
    found = analysis(quantized, floating, measure(quantized, floating, data), data)
    bad = found[0]
    assert bad.layer == "bad" and bad.where_db["weights"] < bad.where_db["output"]
    assert bad.where_db.keys() == {"weights", "output"}
    assert bad.reasons[0].startswith("input channel 3")
