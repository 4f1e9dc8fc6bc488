"""`equalize=measured`: ranges of channels are the largest values of samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import qgraph.static.search as search_module
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.quant.activations import activated_channels
from qgraph.quant.noise_balance import LayerSteps, layer_noises
from qgraph.quant.plan import Plan
from qgraph.quant.profile import load_profile
from qgraph.recipes import FLOAT
from qgraph.rewrite.channels import channel_map
from qgraph.static.channel_factors import channel_factors
from qgraph.static.sample_parts import split
from qgraph.static.search import Trial, search, steps_of
from tests.helpers.layers import WINDOW

INT8 = load_profile("graffitist-int8")


def folded(g: Graph) -> Graph:
    graph = g.copy()
    PassManager(FLOAT).run(graph)
    return graph


def _normed(g: Graph, value: str, name: str, deviations: list[float]) -> str:
    """A batch norm that changes nothing, and remembers mean 1 and these deviations."""
    spread = np.array(deviations, np.float32)
    vectors = (spread, np.ones_like(spread), np.ones_like(spread), spread**2)
    norm = [g.const(v, f"{name}/{i}") for i, v in enumerate(vectors)]
    return g.add("batch_norm", value, *norm, attrs={"epsilon": 0.0})


def tailed(samples: int = 32) -> tuple[Graph, np.ndarray]:
    """Two channels of mean 1 and deviation 0.5; the first has values of 5 in its samples."""
    g = Graph("tailed")
    x = g.input("x", "float32", (None, 8, 8, 2))
    one = np.eye(2, dtype=np.float32)[None, None]
    y = g.add("conv2d", x, g.const(one, "w"), attrs=WINDOW, name="first")
    y = g.add("relu6", _normed(g, y, "a", [0.5, 0.5]))
    last = np.random.default_rng(0).normal(0, 1, (1, 1, 2, 3)).astype(np.float32)
    y = g.add("conv2d", y, g.const(last, "p"), attrs=WINDOW, name="last")
    g.outputs["y"] = _normed(g, y, "b", [1, 1, 1])
    data = 1 + 0.5 * np.random.default_rng(1).uniform(-1, 1, (samples, 8, 8, 2))
    data[:, 3, 3, 0] = 5
    return g, data.astype(np.float32)


def test_measured_ranges_are_the_largest_values_of_samples() -> None:
    g, data = tailed()
    graph = folded(g)
    channels = channel_map(graph)
    inputs = activated_channels(graph, channels.layers, {"x": data})["last"].largest
    assert inputs is not None and inputs[0] == 5.0 and 1.4 < inputs[1] < 1.5
    coarse = dict.fromkeys(("first", "last"), LayerSteps(input=2.0**-4, weights=2.0**-14))
    usual, measured = (
        np.array(channel_factors(graph, {"x": data}, coarse, measured=tails)["first"]) / 16
        for tails in (False, True)
    )
    # Both channels would have the range 3; with its tail, the first has 5 and is divided by more.
    assert measured[0] - measured[1] > usual[0] - usual[1] + 0.5


def test_a_channel_that_samples_leave_silent_keeps_a_usual_range() -> None:
    g, data = tailed()
    data[..., 1] = 0
    graph = folded(g)
    channels = channel_map(graph)
    seen = activated_channels(graph, channels.layers, {"x": data})
    *_, layer = layer_noises(graph, channels, seen)
    mean, deviation = 1.0, 0.5  # that its batch norm remembers; ReLU6 hardly changes them
    assert layer.ranges[0] == 5.0
    assert layer.ranges[1] == pytest.approx(mean + deviation, rel=0.02)


@pytest.mark.parametrize("effort", ["default", "thorough"])
@pytest.mark.parametrize("better", [True, False])
def test_ranges_of_samples_are_tried_where_those_of_batch_norms_are_the_best(
    monkeypatch: pytest.MonkeyPatch, effort: str, better: bool
) -> None:
    measure = search_module._Bench.trial

    def trial(bench: search_module._Bench, plan: Plan) -> Trial:
        found = measure(bench, plan)
        more = 99.0 if better else -99.0
        changed = replace(found.agreement, sqnr=found.agreement.sqnr + more)
        other = replace(found, comparison=replace(found.comparison, agreement=changed))
        return other if plan == search_module.BALANCED else found

    monkeypatch.setattr(search_module._Bench, "trial", trial)
    g, data = tailed()
    tried: list[Trial] = []
    search(g, INT8, split(g, {"x": data}), effort, on_trial=tried.append)
    found = [trial.plan.equalize for trial in tried if trial.plan.equalize.by_noise]
    assert found[:2] == ["noise", "measured"][: 1 + better]
    assert better or found == ["noise"]
    assert len(tried) <= steps_of(effort)
