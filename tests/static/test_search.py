"""Static mode: plans are compared on samples kept apart, and the best one is kept."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import qgraph
from qgraph.errors import UsageError
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.passes import PassManager
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import load_profile
from qgraph.recipes import FLOAT
from qgraph.rewrite.trace import Trace
from qgraph.static import search as search_module
from qgraph.static.agreement import agreement, decisions
from qgraph.static.build import build
from qgraph.static.comparison import Comparison
from qgraph.static.sample_parts import split
from qgraph.static.search import Trial, search, steps_of
from qgraph.static.shared_build import SharedBuild
from tests.helpers.layers import WINDOW
from tests.helpers.trained import images, trained

RNG = np.random.default_rng(0)
INT4 = load_profile("graffitist-int4")


def network(batch: int | None = None) -> Graph:
    """Channels of very different range between layers: what one scale per tensor cannot hold."""
    g = Graph("net")
    x, scale = g.input("x", "float32", (batch, 6, 6, 3)), np.array([1e-3, 0.1, 1, 30] * 2)
    for inputs, outputs, before, after in ((3, 8, 1, scale), (8, 8, 1 / scale[:, None], 1)):
        w = RNG.normal(size=(3, 3, inputs, outputs)) * before * after
        x = g.add("conv2d", x, g.const(w.astype(np.float32), "w"), attrs=WINDOW)
        bias = RNG.normal(size=outputs) * after
        x = g.add("relu", g.add("bias_add", x, g.const(bias.astype(np.float32), "b")))
    x = g.add("mean", x, attrs={"axes": (1, 2), "keepdims": False})
    w = g.const(RNG.normal(size=(8, 5)).astype(np.float32), "w")
    g.outputs["y"] = g.add("softmax", g.add("matmul", x, w))
    return g


def samples(count: int) -> dict[str, np.ndarray]:
    return {"x": RNG.normal(size=(count, 6, 6, 3)).astype(np.float32)}


def test_outputs_are_compared_before_their_softmax() -> None:
    graph = network()
    assert decisions(graph) == ["matmul"]
    same = agreement(graph, graph, samples(4))
    assert same.sqnr == float("inf") and same.top1 == 1 and same.samples == 4


def test_a_search_keeps_what_helps() -> None:
    graph, data = network(), samples(48)
    parts = split(graph, data)
    tried: list[Trial] = []
    found = search(graph, INT4, parts, "default", on_trial=tried.append)
    trials = found.trials
    assert not found.ended
    assert tried[0].plan == PLAIN
    scores = [trial.agreement.sqnr for trial in trials]
    assert scores[1:] == sorted(scores[1:], reverse=True) and len(trials) <= steps_of("default")
    assert len({trial.plan for trial in trials}) == len(trials)
    assert trials[0].plan.equalize and scores[0] > tried[0].agreement.sqnr + 6
    _, built = build(graph, INT4, trials[0].plan, parts.calibration, Trace())
    PassManager(FLOAT).run(graph)
    assert agreement(graph, built, parts.comparison) == trials[0].agreement


@pytest.mark.parametrize("best", [True, False])
def test_default_tries_single_steps_unless_balanced_is_the_best(monkeypatch, best: bool) -> None:
    measure = search_module._Bench.trial

    def trial(bench, plan: Plan) -> Trial:
        found = measure(bench, plan)
        balanced = plan == search_module.BALANCED
        result = replace(found.agreement, sqnr=found.agreement.sqnr + (99.0 if best else -99.0))
        comparison = replace(found.comparison, agreement=result)
        return replace(found, comparison=comparison) if balanced else found

    monkeypatch.setattr(search_module._Bench, "trial", trial)
    graph, tried = trained(), []
    search(graph, INT4, split(graph, {"image": images(48)}), "default", on_trial=tried.append)
    plans = [trial.plan for trial in tried]
    # Ranges do not change the factors of weights of 4 bits here: no network is tried twice.
    assert plans[:3] == [PLAIN, search_module.SAFE, search_module.BALANCED]
    assert (len(plans) == 3) == best
    assert best or any(plan.reconstruct for plan in plans[3:])


def test_plans_that_build_the_same_network_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No channel of `trained` is constant: each ratio of constant channels builds one network."""
    monkeypatch.setattr(search_module, "BALANCED", search_module.SAFE)
    graph, data = trained(), {"image": images(48)}
    plans = [trial.plan for trial in search(graph, INT4, split(graph, data), "default").trials]
    assert {plan.constant_channels for plan in plans} == {0.0, search_module.SAFE.constant_channels}
    shared = SharedBuild(graph, INT4, data)
    assert len({shared.network_of(plan) for plan in plans}) == len(plans) > 6
    alike = replace(plans[0], constant_channels=0.3)
    assert shared.network_of(alike) == shared.network_of(plans[0])
    assert print_graph(shared.build(alike)) == print_graph(shared.build(plans[0]))


@pytest.mark.parametrize("beyond_chance", [False, True])
def test_fresh_samples_decide_unless_all_tried_plans_count(
    monkeypatch: pytest.MonkeyPatch, beyond_chance: bool
) -> None:
    graph = network()
    parts = split(graph, samples(24))
    asked = []

    def certainly_nearer(self, other, tried: int = 1) -> bool:
        asked.append(tried)
        return tried == 1 or beyond_chance

    monkeypatch.setattr(Comparison, "certainly_nearer", certainly_nearer)
    found = search(graph, INT4, parts, "default").trials
    assert asked == [1, len(found)] + [1] * (not beyond_chance)


@pytest.mark.parametrize("certain_at_first", [False, True])
def test_what_is_not_certainly_better_gives_way_to_the_plan_of_fast(
    monkeypatch: pytest.MonkeyPatch, certain_at_first: bool
) -> None:
    """Whether the doubt comes from the samples that led the steps or from fresh ones."""
    graph = network()
    parts = split(graph, samples(24))
    verdicts = iter([certain_at_first, False])
    monkeypatch.setattr(
        Comparison,
        "certainly_nearer",
        lambda self, other, tried=1: next(verdicts) if tried == 1 else False,
    )
    monkeypatch.setattr(search_module, "SAFE", PLAIN)
    fast = search(graph, INT4, parts, "fast").trials[0]
    kept, *others = search(graph, INT4, parts, "default").trials
    assert kept.plan == fast.plan
    assert any(trial.agreement.sqnr > kept.agreement.sqnr for trial in others)


@pytest.mark.parametrize("effort", ["default", "thorough"])
def test_more_effort_begins_with_what_less_effort_tries(effort: str) -> None:
    """Steps that help together but not one by one are found, as `fast` finds them."""
    graph, data = network(), samples(24)
    parts = split(graph, data)
    fast = search(graph, INT4, parts, "fast").trials
    more = search(graph, INT4, parts, effort).trials
    assert {trial.plan for trial in fast} <= {trial.plan for trial in more}
    assert more[0].agreement.sqnr >= fast[0].agreement.sqnr


def test_a_budget_of_nothing_leaves_the_first_plan() -> None:
    graph = network()
    start = Plan(method="mse")
    found = search(graph, INT4, split(graph, samples(16)), "thorough", start, budget=0)
    assert [trial.plan for trial in found.trials] == [start]
    assert found.ended == "the budget of seconds"


def test_ctrl_c_keeps_the_best_so_far() -> None:
    graph, seen = network(), itertools.count(1)

    def interrupt(_: Trial) -> None:
        if next(seen) == 3:
            raise KeyboardInterrupt

    found = search(graph, INT4, split(graph, samples(16)), "default", on_trial=interrupt)
    trials = found.trials
    assert len(trials) == 3 and found.ended == "Ctrl-C"
    assert trials[0].agreement.sqnr == max(trial.agreement.sqnr for trial in trials)


def test_ctrl_c_before_anything_is_measured_stops() -> None:
    def interrupt(_: Trial) -> None:
        raise KeyboardInterrupt

    graph = network()
    with pytest.raises(KeyboardInterrupt):
        search(graph, INT4, split(graph, samples(16)), "fast", on_trial=interrupt)


def test_a_search_that_was_ended_is_warned_of() -> None:
    result = qgraph.quantize(network(), samples(48), budget=0)
    assert result.facts.warnings[0] == (
        "the budget of seconds ended the search after 1 plan: the best so far is kept"
    )


def test_feature_scales_are_tried_where_the_profile_has_them() -> None:
    graph = Graph("mlp")
    x = graph.input("x", "float32", (None, 4))
    graph.outputs["y"] = graph.add("matmul", x, graph.const(RNG.normal(size=(4, 3)).astype("f4")))
    data = {"x": RNG.normal(size=(32, 4)).astype("float32")}
    parts = split(graph, data)
    for name, tried in (("policy-int8", True), ("graffitist-int8", False)):
        trials = search(graph, load_profile(name), parts, "default").trials
        assert any(trial.plan.scale_inputs for trial in trials) == tried


def test_unknown_effort() -> None:
    graph = network()
    with pytest.raises(UsageError, match="effort"):
        search(graph, INT4, split(graph, samples(16)), "heroic")


def test_quantize_reports_on_samples_kept_apart() -> None:
    result = qgraph.quantize(network(), samples(48), profile=INT4, effort="fast")
    assert result.facts.agreement.held_out and result.facts.agreement.samples == 12
    assert len(result.facts.choice.trials) == 2 and result.facts.calibration_samples == 36
    plain = qgraph.quantize(network(), samples(48), profile=INT4, effort="plain")
    assert plain.facts.choice.trials == [] and not plain.facts.agreement.held_out


def test_a_given_plan_is_built_without_changes() -> None:
    plan = Plan(equalize="biases", powers_of_two=True, method="mse", correct_bias=True)
    graph, data = network(), samples(8)
    result = qgraph.quantize(graph, data, plan=plan.spec())
    assert result.facts.choice.plan_spec == plan.spec() and result.facts.choice.trials == []
    again = qgraph.quantize(graph, data, plan=plan, effort="plain", method="mse")
    assert print_graph(result.graph) == print_graph(again.graph)
    rules = {(r.pass_name, r.node) for r in result.trace.rewrites}
    assert any(name == "equalize-channels" for name, _ in rules)


@pytest.mark.parametrize("other", [{"effort": "fast"}, {"method": "max"}])
def test_a_plan_goes_with_no_effort_and_no_other_method(other: dict) -> None:
    with pytest.raises(UsageError, match="plan"):
        qgraph.quantize(network(), samples(8), plan="reconstruct", **other)
