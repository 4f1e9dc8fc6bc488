"""Parts of a network quantized alone, and all but them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.quant.plan import Plan
from qgraph.quant.profile import load_profile
from qgraph.quant.topology import QUANTIZERS
from qgraph.rewrite.trace import Trace
from qgraph.static import switched
from qgraph.static.agreement import agreement
from qgraph.static.build import build
from qgraph.static.sensitivity import parts_of, sensitivities
from qgraph.static.switched import Variant, agreements, plain_constant
from tests.helpers.evaluate import random_feeds
from tests.helpers.generators.graphs import random_graph
from tests.helpers.op_graphs import CASES

INT8 = load_profile("graffitist-int8")
RNG = np.random.default_rng(0)
INF = float("inf")
MAX = Plan(method="max")


@pytest.fixture(autouse=True)
def random_numbers_begin_again() -> None:
    """A test draws the same numbers whichever tests ran before it."""
    RNG.bit_generator.state = np.random.PCG64(0).state


def mlp(widths: tuple[int, ...] = (6, 8, 5), weights=None) -> Graph:
    g = Graph("mlp")
    x = g.input("x", "float32", (None, widths[0]))
    for i, shape in enumerate(itertools.pairwise(widths)):
        w = RNG.normal(size=shape) if weights is None else weights[i]
        x = g.add("matmul", x, g.const(np.asarray(w, np.float32), f"w{i}"), name=f"fc{i}")
        bias = g.const(RNG.normal(size=shape[1]).astype(np.float32), f"b{i}")
        x = g.add("relu", g.add("bias_add", x, bias), name=f"relu{i}")
    g.outputs["y"] = x
    return g


def samples(count: int = 40, width: int = 6) -> dict[str, np.ndarray]:
    return {"x": RNG.normal(size=(count, width)).astype(np.float32)}


def made(graph: Graph, data, plan: Plan = MAX) -> tuple[Graph, Graph]:
    return build(graph, INT8, plan, data, Trace())


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_every_quantizer_is_in_one_part_and_switches_give_both_networks(seed: int) -> None:
    graph = random_graph(seed)
    data = random_feeds(graph, batch=4)
    floating, quantized = made(graph, data)
    owned = [q for part in parts_of(quantized) for q in part.quantizers]
    assert sorted(owned) == sorted(n.name for n in quantized.nodes.values() if n.op in QUANTIZERS)
    everything = frozenset(owned)
    off, on, none_left, all_on = agreements(
        quantized,
        floating,
        data,
        [Variant(False), Variant(True), Variant(True, everything), Variant(False, everything)],
    )
    assert off.sqnr == none_left.sqnr == INF
    assert on == all_on
    assert on == agreement(floating, quantized, data)


def test_one_layer_alone_is_all_but_its_input() -> None:
    graph, data = mlp((6, 5)), samples()
    floating, quantized = made(graph, data)
    found = {s.part.name: s for s in sensitivities(quantized, floating, data).parts}
    assert list(found) == ["x", "fc0"]
    assert found["fc0"].alone == found["x"].all_but and found["x"].alone == found["fc0"].all_but
    assert found["fc0"].alone.sqnr < INF and found["x"].alone.sqnr < INF


def test_resumed_runs_are_whole_runs() -> None:
    """A layer alone, against a graph whose other quantizers are taken out by hand."""
    graph, data = mlp(), samples(8)
    floating, quantized = made(graph, data)
    part = next(p for p in parts_of(quantized) if p.name == "fc1")
    (found,) = agreements(quantized, floating, data, [Variant(False, part.quantizers)])
    alone = quantized.copy()
    for node in list(alone.nodes.values()):
        if node.op == "quantize" and node.name not in part.quantizers:
            alone.set_attrs(node.name, spec=_wide(node.attrs["spec"]))
    wanted, got = (evaluate(g, data)["y"].astype(float) for g in (floating, alone))
    noise = 10 * np.log10((wanted**2).sum() / ((wanted - got) ** 2).sum())
    assert found.sqnr == pytest.approx(noise, abs=0.05)


def _wide(spec):
    return replace(spec, bits=32, signed=True, exponent=24)


def test_off_is_the_float_network_though_constants_were_changed() -> None:
    graph, data = mlp(), samples()
    plan = Plan(method="max", reconstruct=True, correct_bias=True)
    floating, quantized = made(graph, data, plan)
    (on,) = agreements(quantized, floating, data, [Variant(True)])
    assert on == agreement(floating, quantized, data)


@pytest.mark.parametrize("op", sorted(CASES.keys() - {"const", "opaque", "layer_norm"}))
def test_off_is_the_float_network_for_each_op(op: str) -> None:
    for case in CASES[op]:
        graph = Graph(op)
        graph.outputs["y"] = case(graph)
        if [graph.types[name].shape[:1] for name in graph.inputs] != [(None,)]:
            continue  # its inputs have no axis of samples
        data = random_feeds(graph, batch=2)
        floating, quantized = made(graph, data)
        (on,) = agreements(quantized, floating, data, [Variant(True)])
        assert on == agreement(floating, quantized, data)


def test_off_a_layer_norm_has_the_constants_of_the_float_network() -> None:
    """Its float steps round more often than the float op, so that results are not compared."""
    for case in CASES["layer_norm"]:
        graph = Graph("norm")
        graph.outputs["y"] = case(graph)
        floating, quantized = made(graph, random_feeds(graph, batch=2))
        held = {
            node.inputs[0]: plain_constant(quantized, floating, node)
            for node in quantized.topological()
            if node.op == "quantize" and quantized.constant(node.inputs[0]) is not None
        }
        assert len(held) == 2
        for name, found in held.items():
            np.testing.assert_array_equal(found, floating.constant(name))


def test_the_bad_layer_is_the_worst_both_ways() -> None:
    spread = np.ones((8, 8), np.float32) * RNG.normal(size=(8, 8))
    spread[3] *= 300
    graph = mlp((6, 8, 8, 5), [RNG.normal(size=(6, 8)), spread, RNG.normal(size=(8, 5))])
    first = graph.nodes["w0"].attrs["value"] * np.where(np.arange(8) == 3, 1e-3, 1)
    graph.set_attrs("w0", value=first.astype(np.float32))
    data = samples()
    found = sensitivities(*reversed(made(graph, data)), data)
    worst = found.by_harm()[0]
    assert worst.part.name == "fc1"
    assert worst.all_but.sqnr == max(s.all_but.sqnr for s in found.parts)


def test_ctrl_c_gives_what_the_samples_seen_showed(monkeypatch) -> None:
    graph, data = mlp(), samples(40)
    floating, quantized = made(graph, data)
    monkeypatch.setattr(switched.os, "sched_getaffinity", lambda _: {0})

    def interrupt(done: int, total: int) -> None:
        assert total == 5
        if done == 2:
            raise KeyboardInterrupt

    found = sensitivities(quantized, floating, data, interrupt)
    first = {"x": data["x"][:16]}
    assert found.whole.samples == 16
    assert found == sensitivities(quantized, floating, first)


def test_ctrl_c_before_anything_is_measured_stops(monkeypatch) -> None:
    graph, data = mlp(), samples(8)
    floating, quantized = made(graph, data)
    monkeypatch.setattr(switched, "tally", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        sensitivities(quantized, floating, data)


def test_nothing_to_quantize() -> None:
    g = Graph("empty")
    g.outputs["y"] = g.add("exp", g.input("x", "float32", (None, 6)))
    data = samples()
    found = sensitivities(*reversed(made(g, data)), data)
    assert found.parts == () and found.whole.sqnr == INF


def test_so_far_begins_with_the_first_alone_and_ends_with_the_whole() -> None:
    graph, data = mlp((6, 8, 7, 5)), samples()
    floating, quantized = made(graph, data)
    found = sensitivities(quantized, floating, data)
    parts = found.parts
    assert parts[0].so_far == parts[0].alone and parts[-1].so_far == found.whole
    both = frozenset(parts[0].part.quantizers | parts[1].part.quantizers)
    assert agreements(quantized, floating, data, [Variant(False, both)]) == [parts[1].so_far]
    assert len({s.so_far.sqnr for s in parts}) == len(parts)


def test_outputs_that_share_logits_have_one_class() -> None:
    graph, data = mlp(), samples()
    (logits,) = graph.outputs.values()
    graph.outputs["again"] = logits
    graph.outputs["probabilities"] = graph.add("softmax", logits)
    floating, quantized = made(graph, data)
    (on,) = agreements(quantized, floating, data, [Variant(True)])
    found = agreement(floating, quantized, data)
    assert on == found and found.top1 is not None
    del graph.outputs["again"], graph.outputs["probabilities"]
    assert agreement(*made(graph, data), data) == found
