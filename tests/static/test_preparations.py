"""Plans that share passes get the graphs that they get alone, and each pass runs once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qgraph.passes import PassManager, PassResult
from qgraph.pipelines import USUAL, pipeline_of
from qgraph.quant.plan import PLAIN, Plan, everything
from qgraph.quant.profile import load_profile
from qgraph.rewrite.trace import Trace
from qgraph.static.preparations import Preparations
from tests.static.test_search import network, samples
from tests.static.test_shared_build import same

INT8, INT4 = load_profile("graffitist-int8"), load_profile("graffitist-int4")
PLANS = (
    PLAIN,
    Plan(equalize="biases"),
    Plan(equalize="weights", absorb=True),
    Plan(equalize="biases", constant_channels=0.1),
    Plan(equalize="biases", powers_of_two=True),
    replace(everything(), constant_channels=0.1),
    PLAIN,
)


@pytest.mark.parametrize("backwards", [False, True])
def test_graphs_and_logs_are_those_of_separate_runs(backwards: bool) -> None:
    graph, data = network(), samples(8)
    shared = Preparations(graph)
    for plan in reversed(PLANS) if backwards else PLANS:
        for profile in (INT8, INT4):
            seen: list[list[PassResult]] = [[], []]
            traces = Trace(), Trace()
            alone = Preparations(graph).prepared(profile, plan, data, traces[0], seen[0].append)
            found = shared.prepared(profile, plan, data, traces[1], seen[1].append)
            assert all(same(a, b) for a, b in zip(found, alone, strict=True)), plan.spec()
            assert traces[0].stored == traces[1].stored and seen[0] == seen[1]
            assert len(seen[0]) == len(USUAL.static(profile, plan)) + plan.scale_inputs


def test_the_passes_are_those_of_the_recipe() -> None:
    graph, plan = network(), Plan(equalize="biases")
    floating, quantized = Preparations(graph).prepared(INT8, plan, samples(8), Trace())
    by_hand = graph.copy()
    PassManager(USUAL.prepare(plan)).run(by_hand)
    assert same(floating, by_hand)
    PassManager(USUAL.insert(INT8)).run(by_hand)
    assert same(quantized, by_hand)


def test_common_first_steps_of_plans_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    run = PassManager.run

    def watched(self: PassManager, *args: object) -> object:
        ran.extend(step.name for step in self.passes)
        return run(self, *args)

    monkeypatch.setattr(PassManager, "run", watched)
    shared, data = Preparations(network()), samples(8)
    for plan in (PLAIN, Plan(equalize="biases"), Plan(equalize="weights"), Plan(absorb=True)):
        shared.prepared(INT8, plan, data, Trace())
    assert ran.count("fix-input-shape") == 1 and ran.count("equalize-channels") == 2
    shared.forget_all_but([Plan(equalize="biases")])
    ran.clear()
    shared.prepared(INT8, Plan(equalize="biases"), data, Trace())
    assert "fix-input-shape" not in ran and "equalize-channels" not in ran
    shared.prepared(INT8, Plan(equalize="weights"), data, Trace())
    assert "fix-input-shape" not in ran and ran.count("equalize-channels") == 1


def test_a_prepared_graph_may_be_changed() -> None:
    shared, data = Preparations(network()), samples(8)
    texts = []
    for _ in range(2):
        floating, quantized = shared.prepared(INT8, PLAIN, data, Trace())
        texts.append((str(floating), str(quantized)))
        for graph in (floating, quantized):
            graph.outputs.clear()
    assert texts[0] == texts[1]


def test_a_pass_list_of_ones_own() -> None:
    pipeline = pipeline_of("float,equalize-channels", "", INT8)
    shared, data = Preparations(network(), pipeline), samples(8)
    one, other = (shared.prepared(INT8, PLAIN, data, Trace()) for _ in range(2))
    assert all(same(a, b) for a, b in zip(one, other, strict=True))
