"""Factors that bring the ranges of whole tensors to powers of two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.pipelines import USUAL
from qgraph.quant.activations import activated_channels
from qgraph.quant.noise_balance import LayerSteps, layer_noises
from qgraph.quant.plan import Plan
from qgraph.quant.profile import load_profile
from qgraph.quant.step_fit import GAINS, fitted_to_steps
from qgraph.recipes import FLOAT
from qgraph.rewrite.channels import channel_map
from qgraph.rewrite.trace import Trace
from qgraph.static.build import build
from qgraph.static.channel_factors import channel_factors, layer_steps
from qgraph.transforms.equalize_channels import EqualizeChannels, factors_by_layer
from tests.helpers.generators.graphs import random_graph
from tests.static.test_channel_factors import images, network, prepared
from tests.transforms.test_equalize_channels import outputs

INT8 = load_profile("graffitist-int8")
NOISE = Plan(equalize="noise", method="mse", reconstruct=True)


def chain(ends: list[float], *, joined: bool = False) -> Graph:
    """Dense layers of two channels whose outputs on `steps_to(1)` end at `ends`, then another one.

    joined: the first two outputs are added, so that they share their channels.
    """
    g = Graph("chain")
    x = g.input("x", "float32", (None, 2))
    y, last, parts = x, 1.0, []
    for i, end in enumerate(ends):
        w = (np.eye(2) * end / last).astype(np.float32)
        y = g.add("relu", g.add("matmul", y, g.const(w, f"w{i}"), name=f"layer{i}"))
        parts, last = [*parts, y], end
        if joined and len(parts) == 2:
            y, last = g.add("add", *parts), sum(ends[:2])
    out = np.array([[1, -0.5], [0.25, 1]], np.float32)
    g.outputs["y"] = g.add("matmul", y, g.const(out, "out"), name="last")
    return g


def steps_to(end: float) -> dict[str, np.ndarray]:
    ramp = np.linspace(0, end, 256, dtype=np.float32)
    return {"x": np.stack([ramp, ramp[::-1]], -1)}


def gains_of(graph: Graph, weights: float = 2.0**-15) -> dict[str, float]:
    """log2 of the factor that multiplies the outputs of each layer. weights: their step."""
    floating = graph.copy()
    PassManager(FLOAT).run(floating)
    quantized = floating.copy()
    PassManager(USUAL.insert(INT8)).run(quantized)
    channels, data = channel_map(floating), steps_to(1)
    seen = activated_channels(floating, channels.layers, data)
    steps = {layer.name: LayerSteps(2.0**-8, weights) for layer in channels.layers}
    layers = layer_noises(floating, channels, seen, steps)
    made = fitted_to_steps(channels, np.zeros(channels.count), layers, quantized, data)
    found = {layer.name: np.unique(-made[channels.of(layer.name)]) for layer in channels.layers}
    assert all(len(gains) == 1 for gains in found.values())
    return {name: float(gains[0]) for name, gains in found.items()}


@pytest.mark.parametrize(
    ("end", "gain"), [(1.06, 7), (1.2, 5), (1.45, 3), (1.9, 0), (0.53, 7), (1.0, 0)]
)
def test_a_range_is_scaled_to_the_next_power_of_two(end: float, gain: int) -> None:
    assert gains_of(chain([end])) == {"layer0": gain / GAINS, "last": 0}


def test_tensors_are_scaled_one_by_one() -> None:
    assert gains_of(chain([1.06, 1.9, 1.45])) == {
        "layer0": 7 / GAINS, "layer1": 0, "layer2": 3 / GAINS, "last": 0,
    }  # fmt: skip


def test_tensors_that_share_channels_get_one_factor() -> None:
    found = gains_of(chain([1.06, 1.06, 1.9], joined=True))
    assert found["layer0"] == found["layer1"] == 7 / GAINS
    # A range that ends at 0.9 is well used. That of the sum, 1.1, is not, and its error is larger.
    assert gains_of(chain([0.9]))["layer0"] == 1 / GAINS
    apart = gains_of(chain([0.9, 0.2, 1.9], joined=True))
    assert apart["layer0"] == apart["layer1"] == 6 / GAINS


def test_ranges_of_weights_count_too() -> None:
    """With steps of 1 / 8, weights of 1.06 need a factor of about 0.94 or 1.18 to be codes."""
    graph = chain([1.06])
    fine, coarse = (gains_of(graph, weights)["layer0"] for weights in (2.0**-15, 2.0**-3))
    assert fine == 7 / GAINS
    errors = [abs(w - round(8 * w) / 8) for w in (1.06 * 2.0**fine / 2, 1.06 * 2.0**coarse / 2)]
    assert errors[1] < errors[0]


@given(st.integers(0, 1 << 16))
def test_the_function_is_kept(seed: int) -> None:
    graph = random_graph(seed)
    PassManager(FLOAT).run(graph)
    quantized = graph.copy()
    PassManager(USUAL.insert(INT8)).run(quantized)
    channels = channel_map(graph)
    rng = np.random.default_rng(seed)
    shapes = {name: [d or 4 for d in graph.types[name].shape] for name in graph.inputs}
    data = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    seen = activated_channels(graph, channels.layers, data)
    layers = layer_noises(graph, channels, seen)
    log2 = fitted_to_steps(channels, np.zeros(channels.count), layers, quantized, data)
    assert not log2[channels.frozen].any()
    scaled = graph.copy()
    PassManager([EqualizeChannels(factors=factors_by_layer(channels, log2))]).run(scaled)
    wanted, found = outputs(graph), outputs(scaled)
    for name, y in wanted.items():
        np.testing.assert_allclose(found[name], y, rtol=1e-9, atol=1e-9 * np.abs(y).max())


def test_a_fit_leaves_less_noise() -> None:
    graph, data = chain([1.06, 1.07, 1.05]), steps_to(1)
    PassManager(FLOAT).run(graph)
    scaled, gains = graph.copy(), gains_of(graph)
    factors = {name: (round(-16 * gain),) * 2 for name, gain in gains.items() if gain}
    PassManager([EqualizeChannels(factors=factors)]).run(scaled)

    fine = replace(INT8.bits, input=16, weight=16, weight_ends=16, output=16)
    only_activations = replace(INT8, bits=fine)

    def noise(graph: Graph) -> float:
        _, quantized = build(graph, only_activations, Plan(method="mse"), data, Trace())
        found, wanted = (evaluate(g, data)["y"] for g in (quantized, graph))
        return float(((found - wanted) ** 2).mean())

    assert noise(scaled) < 0.5 * noise(graph)


def test_the_usual_steps_fit_ranges() -> None:
    data = {"x": images()}
    fitted, quantized = build(network(), INT8, NOISE, data, Trace())
    plain = channel_factors(prepared(network()), data, layer_steps(quantized))
    moved = {
        name: np.unique(np.subtract(factors, fitted.factors[name]))
        for name, factors in plain.items()
    }
    assert all(len(gains) == 1 for gains in moved.values())
    assert {int(gains[0]) for gains in moved.values()} - {0}
