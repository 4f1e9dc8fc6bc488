"""Builds that share stages make the graphs that separate builds make, in whatever order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import load_profile
from qgraph.rewrite.trace import Trace
from qgraph.static import shared_build
from qgraph.static.build import build
from qgraph.static.preparations import Preparations
from qgraph.static.search import SAFE
from qgraph.static.shared_build import SharedBuild
from tests.static.test_search import network, samples

INT4 = load_profile("graffitist-int4")
PLANS = (
    PLAIN,
    SAFE,
    Plan(method="mse", correct_bias=True),
    Plan(method="mse"),  # its thresholds differ: nothing follows that corrects values
    Plan(method="mse", reconstruct=True, correct_bias=True),
    Plan(method="mse", reconstruct=True),
    Plan(method="mse", weights="3sd"),
    Plan(method="max", equalize="biases", powers_of_two=True, reconstruct=True),
    replace(SAFE, correct_bias=False),
    SAFE,
)


def same(one: Graph, other: Graph) -> bool:
    """Equal text, and every array equal to the bit."""
    names = [n for n, node in one.nodes.items() if node.op == "const"]
    held = [(one.constant(n), other.constant(n)) for n in names]
    return print_graph(one) == print_graph(other) and all(
        a is not None and b is not None and a.tobytes() == b.tobytes() for a, b in held
    )


@pytest.mark.parametrize("backwards", [False, True])
def test_shared_stages_change_no_network(backwards: bool) -> None:
    graph, data = network(), samples(24)
    shared = SharedBuild(graph, INT4, data)
    for plan in reversed(PLANS) if backwards else PLANS:
        _, alone = build(graph, INT4, plan, data, Trace())
        assert same(shared.build(plan), alone), plan.spec()


def test_each_stage_runs_once_and_what_is_not_needed_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[str] = []
    places = (
        (Preparations, "prepared"),
        (shared_build, "statistics_of"),
        (shared_build, "calibrate_by"),
        (shared_build, "reconstruct"),
    )
    for place, name in places:
        stage = getattr(place, name)

        def watched(*args: object, stage=stage, name=name, **options: object) -> object:
            ran.append(name)
            return stage(*args, **options)

        monkeypatch.setattr(place, name, watched)
    shared = SharedBuild(network(), INT4, samples(16))
    best = Plan(method="mse", reconstruct=True, correct_bias=True)
    for plan in (best, replace(best, correct_bias=False), replace(best, reconstruct=False)):
        shared.build(plan)
    assert ran == ["prepared", "statistics_of", "calibrate_by", "reconstruct"]
    shared.build(replace(best, method="max"))
    shared.forget_all_but(best)
    ran.clear()
    shared.build(best)
    assert not ran
    shared.build(replace(best, method="max"))
    assert ran == ["calibrate_by", "reconstruct"]


def test_a_network_that_was_given_away_may_be_changed() -> None:
    shared = SharedBuild(network(), INT4, samples(16))
    first = shared.build(PLAIN)
    name = next(n for n, node in first.nodes.items() if node.op == "const")
    first.set_attrs(name, value=np.zeros_like(first.constant(name)))
    assert not same(first, shared.build(PLAIN))
