"""Bits layer by layer: found within a budget, built as found, exact for every assignment."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qgraph
from qgraph.errors import ExactnessError, UsageError
from qgraph.ir.graph import Graph
from qgraph.quant.bits import Budget
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import Override, Profile, dump_profile, load_profile, parse_profile
from qgraph.rewrite.trace import Trace
from qgraph.static import mixed, search
from qgraph.static.build import build
from qgraph.static.mixed import search_bits
from qgraph.static.sample_parts import split
from qgraph.static.units import WIDTHS, bits_of, overridden, uniform, units_by, widest_within
from tests.helpers.evaluate import random_feeds
from tests.helpers.generators.graphs import random_graph
from tests.helpers.quantized import assert_tf_equals_reference

INT8 = load_profile("graffitist-int8")
MAX = Plan(method="max")
RNG = np.random.default_rng(0)
ODD_NAMES = ("tower[0]/fc", "a*b", "what?", "[!x]")


def mlp(*widths: int, names: tuple[str, ...] = ()) -> Graph:
    """Matmuls with biases and ReLU."""
    g = Graph("mlp")
    x = g.input("x", "float32", (None, widths[0]))
    for i, shape in enumerate(itertools.pairwise(widths)):
        w = RNG.normal(size=shape)
        layer = names[i] if names else f"fc{i}"
        x = g.add("matmul", x, g.const(w.astype(np.float32), f"w{i}"), name=layer)
        x = g.add("relu", g.add("bias_add", x, g.const(np.zeros(shape[1], np.float32), f"b{i}")))
    g.outputs["y"] = x
    return g


def samples(count: int = 40, width: int = 8) -> dict[str, np.ndarray]:
    return {"x": RNG.normal(size=(count, width)).astype(np.float32)}


def weight_bits(graph: Graph) -> dict[str, int]:
    return {
        n.name: graph.producer(n.inputs[1]).attrs["spec"].bits
        for n in graph.topological()
        if n.op in ("matmul", "conv2d", "depthwise_conv2d")
        and graph.producer(n.inputs[1]).attrs["spec"].role == "weight"
    }


def test_the_search_stays_within_budgets_and_beats_the_same_bits_everywhere() -> None:
    graph = mlp(8, 4, 64, 32, 4)
    budgets = [Budget(mean_bits=b) for b in (3, 4, 5)]
    found = search_bits(graph, INT8, MAX, split(graph, samples(80)), budgets)
    sizes = [u.size for u in found.units]
    assert sizes == [32, 256, 2048, 128]
    for budget, point in found.chosen.items():
        assert point.mean_bits <= (budget.mean_bits or 0)
        assert point.weight_bytes == -(-sum(np.multiply(point.bits, sizes)) // 8)
    four = next(p for p in found.points if p.uniform and p.mean_bits == 4)
    assert found.chosen[budgets[1]].agreement.sqnr >= four.agreement.sqnr
    best = found.chosen[budgets[2]]
    assert best.bits[2] == min(best.bits) and best.agreement.sqnr > four.agreement.sqnr + 3
    scores = [found.chosen[b].agreement.sqnr for b in budgets]
    assert scores == sorted(scores)


def test_the_front_has_no_point_that_another_beats() -> None:
    graph = mlp(8, 8, 4)
    found = search_bits(graph, INT8, MAX, split(graph, samples(40)), [Budget(mean_bits=5)])
    front = sorted(found.front(), key=lambda p: p.weight_bytes)
    assert front and [p.agreement.sqnr for p in front] == sorted(p.agreement.sqnr for p in front)
    for point in set(found.points) - set(front):
        assert any(
            p.weight_bytes <= point.weight_bytes and p.agreement.sqnr >= point.agreement.sqnr
            for p in front
        )


def test_the_report_part_is_never_seen(monkeypatch) -> None:
    graph = mlp(8, 8, 4)
    parts = split(graph, samples(40))
    seen = []
    for module, name in ((mixed, "build"), (mixed, "agreement"), (mixed, "agreements")):
        kept = getattr(module, name)

        def spy(*args, kept=kept, **options):
            seen.extend(a["x"] for a in args if isinstance(a, dict) and "x" in a)
            return kept(*args, **options)

        monkeypatch.setattr(module, name, spy)
    search_bits(graph, INT8, MAX, parts, [Budget(mean_bits=5)])
    report = {row.tobytes() for row in parts.report["x"]}
    assert seen and not any(row.tobytes() in report for array in seen for row in array)


@pytest.mark.parametrize("plan", [PLAIN, Plan(method="mse", reconstruct=True, correct_bias=True)])
def test_quantize_builds_what_was_found(plan: Plan) -> None:
    graph = mlp(8, 12, 12, 4)
    result = qgraph.quantize(graph, samples(60), plan=plan, mean_bits=5)
    facts = result.facts.choice.mixed
    (kept,) = [p for p in facts.points if p.kept]
    assert kept.bits == weight_bits(result.graph)
    assert kept.mean_bits <= 5 and facts.budget == Budget(mean_bits=5)
    assert result.facts.agreement.held_out
    again = qgraph.quantize(
        graph, samples(8), profile=parse_profile(_yaml(result.profile)), plan=plan
    )
    assert weight_bits(again.graph) == kept.bits


def _yaml(profile: Profile):
    import yaml

    return yaml.safe_load(dump_profile(profile))


def test_bytes_are_a_budget_too() -> None:
    result = qgraph.quantize(mlp(8, 12, 4), samples(40), weight_bytes=90)
    (kept,) = [p for p in result.facts.choice.mixed.points if p.kept]
    assert kept.weight_bytes <= 90


def words() -> tuple[Graph, dict[str, np.ndarray]]:
    """Five rows of a table of 20, then two layers; and samples."""
    g, rng = Graph("words"), np.random.default_rng(0)
    x = g.input("x", "int32", (None, 5))
    rows = g.add("embedding", g.const(rng.normal(size=(20, 4)).astype("f"), "table"), x, name="e")
    h = g.add("reshape", rows, attrs={"shape": (-1, 20)})
    for i, shape in enumerate([(20, 8), (8, 3)]):
        h = g.add("matmul", h, g.const(rng.normal(size=shape).astype("f"), f"w{i}"), name=f"fc{i}")
    g.outputs["y"] = h
    return g, {"x": rng.integers(0, 20, (40, 5), np.int32)}


def test_tables_of_embeddings_count_with_the_bits_that_they_have() -> None:
    graph, data = words()
    result = qgraph.quantize(graph, data, weight_bytes=80 + 100)
    found = result.facts.choice.mixed
    assert found.weights == {"e": 80, "fc0": 160, "fc1": 24}
    for point in found.points:
        bits = [point.bits[name] * size for name, size in found.weights.items()]
        assert point.bits["e"] == 8 and point.weight_bytes == -(-sum(bits) // 8)
    (kept,) = [p for p in found.points if p.kept]
    assert kept.weight_bytes <= 180
    assert {override.match for override in result.profile.overrides} == {"fc0", "fc1"}
    with pytest.raises(UsageError, match="too small") as error:
        qgraph.quantize(graph, data, weight_bytes=100)
    assert f"{80 + 184 * 2 // 8:,} bytes" in error.value.hint


def test_names_that_are_patterns_mean_themselves() -> None:
    graph = mlp(8, 8, 8, 8, 4, names=ODD_NAMES)
    units = units_by(graph, INT8, PLAIN)
    bits = (2, 4, 8, 16)
    profile = parse_profile(_yaml(overridden(INT8, units, bits)))
    _, quantized = build(graph, profile, MAX, samples(8), Trace())
    assert weight_bits(quantized) == dict(zip(ODD_NAMES, bits, strict=True))


def test_a_mixed_profile_describes_itself() -> None:
    units = units_by(mlp(8, 8, 4), INT8, PLAIN)
    once = overridden(INT8, units, (8, 4))
    for profile in (once, overridden(once, units, (4, 8))):
        assert profile.name == f"{INT8.name}-mixed"
        said = f"weights of 4, 8 bits, chosen layer by layer; otherwise like {INT8.name}"
        assert profile.description == said


def test_overrides_of_the_profile_hold() -> None:
    own = replace(
        INT8, overrides=(Override("fc1", weight=6, activation=4), Override("fc*", None, 5))
    )
    graph = mlp(8, 12, 12, 4)
    result = qgraph.quantize(graph, samples(40), profile=own, mean_bits=5)
    (kept,) = [p for p in result.facts.choice.mixed.points if p.kept]
    assert weight_bits(result.graph) == kept.bits and kept.bits["fc1"] == 6
    assert kept.bits["fc0"] != INT8.bits.weight
    assert result.profile.override("fc1").activation == 4
    assert result.profile.override("fc0").activation == 5


def test_layers_with_one_tensor_have_one_width() -> None:
    graph = mlp(8, 8, 8)
    shared = graph.nodes["fc1"]
    graph.replace(replace(shared, inputs=(shared.inputs[0], "w0")))
    (unit,) = units_by(graph, INT8, PLAIN)
    assert unit.layers == ("fc0", "fc1") and unit.size == 64
    result = qgraph.quantize(graph, samples(40), mean_bits=4)
    assert weight_bits(result.graph) == {"fc0": 4, "fc1": 4}


def test_one_layer_and_none() -> None:
    one = qgraph.quantize(mlp(8, 4), samples(40), mean_bits=7.9)
    assert weight_bits(one.graph) == {"fc0": 4}
    g = Graph("none")
    g.outputs["y"] = g.add("relu", g.input("x", "float32", (None, 8)))
    with pytest.raises(UsageError, match="no layers with weights"):
        qgraph.quantize(g, samples(40), mean_bits=5)


def test_a_network_of_zeros_has_bits_as_any() -> None:
    graph = mlp(8, 8, 4)
    for name in ("w0", "w1"):
        graph.set_attrs(name, value=np.zeros_like(graph.nodes[name].attrs["value"]))
    result = qgraph.quantize(graph, samples(40), mean_bits=5)
    assert set(weight_bits(result.graph).values()) == {2}


def test_less_than_two_bits_is_an_error_before_anything_is_built(monkeypatch) -> None:
    monkeypatch.setattr(mixed, "build", None)
    with pytest.raises(UsageError, match=r"1\.9 bits on average: too small") as error:
        qgraph.quantize(mlp(8, 8, 4), samples(40), mean_bits=1.9)
    assert error.value.hint == "the smallest budget is 24 bytes, 2 bits on average"
    with pytest.raises(UsageError, match="two weight budgets"):
        qgraph.quantize(mlp(8, 4), samples(40), mean_bits=5, weight_bytes=10)


def test_widths_that_overflow_the_accumulator_are_left_out() -> None:
    narrow = replace(INT8, accumulator_bits=20)
    graph = mlp(8, 8, 4)
    found = search_bits(graph, narrow, MAX, split(graph, samples(40)), [Budget(mean_bits=16)])
    assert max(b for p in found.points for b in p.bits) == 8
    narrow, graph = replace(INT8, accumulator_bits=26), mlp(2, 64, 4)
    parts, budget = split(graph, samples(40, width=2)), Budget(mean_bits=16)
    assert search_bits(graph, narrow, MAX, parts, [budget]).chosen[budget].bits == (16, 8)
    none, graph = replace(INT8, accumulator_bits=8), mlp(8, 8, 4)
    with pytest.raises(ExactnessError, match="accumulator"):
        search_bits(graph, none, MAX, split(graph, samples(40)), [Budget(mean_bits=16)])


def test_a_plan_is_looked_for_at_bits_that_fit() -> None:
    graph = mlp(8, 8, 4)
    assert widest_within(graph, INT8, Budget(mean_bits=7)).bits.weight == 4
    assert widest_within(graph, INT8, Budget(mean_bits=2)) == uniform(INT8, 2)
    assert widest_within(graph, INT8, Budget(weight_bytes=96)).bits.weight_ends == 8


def test_ctrl_c_keeps_the_best_so_far(monkeypatch) -> None:
    graph, count = mlp(8, 4, 64, 4), itertools.count()
    kept = mixed.build

    def interrupted(*args, **options):
        if next(count) == 5:  # the widths took four, the first round of the budget one
            raise KeyboardInterrupt
        return kept(*args, **options)

    monkeypatch.setattr(mixed, "build", interrupted)
    budgets = [Budget(mean_bits=5), Budget(mean_bits=3)]
    found = search_bits(graph, INT8, MAX, split(graph, samples(40)), budgets)
    assert next(count) == 6 and len(found.points) == 5
    assert [found.chosen[b].mean_bits <= (b.mean_bits or 0) for b in budgets] == [True, True]


def test_effort_finds_a_plan_first(monkeypatch) -> None:
    profiles = []
    kept = search.SharedBuild

    def watched(g, p, *rest, **options):
        profiles.append(p)
        return kept(g, p, *rest, **options)

    monkeypatch.setattr(search, "SharedBuild", watched)
    result = qgraph.quantize(mlp(8, 8, 4), samples(40), effort="fast", mean_bits=5)
    assert {p.bits.weight for p in profiles} == {4} and len(result.facts.choice.trials) == 2
    assert result.facts.choice.mixed.points


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_every_assignment_is_exact(seed: int, data) -> None:
    graph = random_graph(seed, layers=5, dtype="float32")
    units = units_by(graph, INT8, PLAIN)
    bits = tuple(data.draw(st.sampled_from(WIDTHS)) for _ in units)
    profile = overridden(INT8, units, bits)
    feeds = random_feeds(graph, batch=4)
    _, quantized = build(graph, profile, MAX, feeds, Trace())
    assert bits_of(quantized, units) == bits
    assert_tf_equals_reference(quantized, feeds)
