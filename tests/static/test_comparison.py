"""Comparison of networks on the same samples: only what is beyond chance counts."""

from __future__ import annotations

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.static.agreement import Agreement, agreement, tally, weighed_sqnr
from qgraph.static.comparison import Comparison, FloatOutputs
from qgraph.static.facts import NO_SIGNAL, AgreementFacts
from qgraph.static.sample_parts import split

RNG = np.random.default_rng(0)


def compared(noise: np.ndarray, signal: float = 1.0) -> Comparison:
    return Comparison(Agreement(0.0, None, len(noise)), np.full(noise.shape, signal), noise)


def noises(samples: int, outputs: int = 1) -> np.ndarray:
    return RNG.lognormal(0, 1, (samples, outputs))


def test_the_same_advantage_on_every_sample_is_certain() -> None:
    noise = noises(16)
    assert compared(0.9 * noise).certainly_nearer(compared(noise))
    assert not compared(noise).certainly_nearer(compared(0.9 * noise))
    assert not compared(noise).certainly_nearer(compared(noise))


def test_an_advantage_by_one_sample_is_not_certain() -> None:
    """The mean is 5 dB better, but only because of one bad sample."""
    noise = np.ones((16, 1))
    other = noise * 0.98
    other[3] = 40.0
    assert other.sum() > 3 * noise.sum()
    assert not compared(noise).certainly_nearer(compared(other))


@pytest.mark.parametrize("samples", [1, 2])
def test_few_samples_prove_little(samples: int) -> None:
    noise = np.ones((samples, 1))
    assert compared(noise / 2).certainly_nearer(compared(noise)) == (samples > 1)
    mixed = np.array([[0.1], [1.1]])[:samples]
    assert not compared(mixed).certainly_nearer(compared(noise))


def test_a_network_no_better_than_another_is_rarely_certain_to_be() -> None:
    """At most about 5 % of comparisons of equals say so; 200 of them, so 10 +- 3."""
    wrong = sum(compared(noises(24)).certainly_nearer(compared(noises(24))) for _ in range(200))
    assert wrong <= 19


def test_the_nearest_of_many_equal_networks_is_rarely_certain_to_be() -> None:
    """Sixteen equals, of which the nearest is compared: at most about 5 % of 60 times."""
    wrong = [0, 0]
    for _ in range(60):
        tried = [compared(noises(24)) for _ in range(16)]
        nearest = min(tried, key=lambda one: float(one.noise.sum()))
        for place, count in enumerate((1, len(tried))):
            wrong[place] += nearest.certainly_nearer(compared(noises(24)), count)
    assert wrong[1] <= 7 < wrong[0]


@pytest.mark.parametrize(("samples", "certain"), [(8, False), (9, True)])
def test_many_networks_need_more_samples_than_two(samples: int, certain: bool) -> None:
    """All of 8 samples agree by chance in one of 256 cases, more than 0.05 / 16."""
    noise = noises(samples)
    assert compared(noise / 2).certainly_nearer(compared(noise))
    assert compared(noise / 2).certainly_nearer(compared(noise), 16) == certain


def test_outputs_weigh_the_same_whatever_their_scale() -> None:
    signal = np.array([1e6, 1.0])
    assert weighed_sqnr(signal, signal / 100) == pytest.approx(20)
    assert weighed_sqnr(signal, np.array([0, 1 / 50])) == pytest.approx(20)
    assert weighed_sqnr(np.array([0.0, 1.0]), np.array([0, 0.01])) == pytest.approx(20)
    assert weighed_sqnr(np.zeros(2), np.zeros(2)) == np.inf


def test_samples_are_distinguished_in_outputs_of_any_shape() -> None:
    wanted = [np.zeros((4, 3)), np.zeros((4, 5, 5, 2)), np.zeros((8, 2))]
    found = [np.ones_like(a) * (np.arange(len(a)) == 2).reshape(-1, *[1] * (a.ndim - 1))
             for a in wanted]  # fmt: skip
    assert tally(wanted, found, 4).noise.tolist() == [[0, 0, 0], [0, 0, 2], [3, 50, 0], [0, 0, 0]]
    transposed = [np.zeros((3, 4))]
    assert tally(transposed, transposed, 4).noise.shape == (1, 1)


def two_outputs(weights: float) -> Graph:
    g = Graph("net")
    x = g.input("x", "float32", (None, 3))
    held = g.const(np.full((3, 2), weights, np.float32))
    g.outputs["a"] = g.add("matmul", x, held)
    g.outputs["b"] = g.add("relu", g.outputs["a"])
    return g


def test_a_reference_finds_what_a_comparison_of_two_graphs_finds() -> None:
    data = {"x": RNG.normal(size=(21, 3)).astype(np.float32)}
    wanted, found = two_outputs(1.0), two_outputs(1.01)
    result = FloatOutputs(wanted, data).compare(found)
    assert result.agreement == agreement(wanted, found, data)
    assert result.noise.shape == result.signal.shape == (21, 2)


def test_exchanged_parts_compare_samples_that_led_no_choice() -> None:
    data = {"x": np.arange(40, dtype=np.float32)[:, None] * np.ones(3, np.float32)}
    graph = two_outputs(1.0)
    parts = split(graph, data)
    fresh = parts.exchanged(graph)
    assert fresh is not None

    def numbers(part: dict) -> set[float]:
        return set(part["x"].ravel().tolist())

    assert numbers(fresh.comparison) <= numbers(parts.calibration)
    assert not numbers(fresh.comparison) & numbers(fresh.calibration)
    assert numbers(parts.comparison) <= numbers(fresh.calibration)
    assert numbers(fresh.calibration) | numbers(fresh.comparison) == numbers(parts.learning)
    few = {"x": data["x"][:3]}
    assert split(graph, few).exchanged(graph) is None


def test_an_output_of_one_number_is_compared() -> None:
    one = tally([np.ones((), np.float32)], [np.full((), 2, np.float32)], 4)
    assert (one.signal.item(), one.noise.item(), one.same, one.answers) == (1, 1, 1, 1)


@pytest.mark.parametrize("sqnr", [-np.inf, np.nan])
def test_outputs_without_a_signal_are_not_stored_as_exact(sqnr: float) -> None:
    stored = AgreementFacts.of(Agreement(sqnr, None, 8), held_out=False)
    assert stored.measured.sqnr == NO_SIGNAL
    exact = AgreementFacts.of(Agreement(np.inf, None, 8), held_out=False)
    assert exact.sqnr is None and exact.measured.sqnr == np.inf
