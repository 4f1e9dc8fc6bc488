"""Compute factors of equalized channels from samples, for the pass that applies them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_if_any
from qgraph.ir.types import Array
from qgraph.passes import Pass
from qgraph.quant.activations import activated_channels
from qgraph.quant.exponents import Factors
from qgraph.quant.noise_balance import LayerSteps, layer_noises, noise_factors
from qgraph.quant.step_fit import fitted_to_steps
from qgraph.quant.topology import sources
from qgraph.rewrite.channels import channel_map
from qgraph.rewrite.constants import is_layer
from qgraph.transforms.equalize_channels import EqualizeChannels, factors_by_layer, given_log2


def channel_factors(
    graph: Graph,
    data: Mapping[str, Array] | None,
    steps: Mapping[str, LayerSteps] | None = None,
    quantized: Callable[[Factors], Graph] | None = None,
    measured: bool = False,
) -> Factors:
    """The factors that minimize noise, by layer, in sixteenths of log2.

    graph: float, before the pass. data: arrays [samples, ...] by input name; None uses batch norms
    alone. steps: see `noise_factors`. quantized: gives the graph with factors and with quantizers;
    with it and with data, ranges of whole tensors are fitted to powers of two. measured: ranges of
    channels are the largest values of samples, not those of a normal variable. The result is empty
    without batch norms, because their statistics are needed.
    """
    if not graph.moments:  # no statistics
        return {}
    channels = channel_map(graph)
    seen = None if data is None else activated_channels(graph, channels.layers, data)
    if seen is not None and not measured:
        seen = {name: replace(found, largest=None) for name, found in seen.items()}
    found = factors_by_layer(channels, noise_factors(graph, channels, seen, steps))
    if data is None or quantized is None:
        return found
    layers, log2 = layer_noises(graph, channels, seen, steps), given_log2(channels, found)
    fitted = fitted_to_steps(channels, log2, layers, quantized(found), data)
    return factors_by_layer(channels, fitted)


def layer_steps(quantized: Graph) -> dict[str, LayerSteps]:
    """The steps of the layers of a graph with quantizers, for those that have integer inputs."""
    found: dict[str, LayerSteps] = {}
    for node in quantized.topological():
        if not is_layer(node):
            continue
        specs = [
            spec_if_any(quantized.nodes[source])
            for value in node.inputs
            for source in sources(quantized, value)[:1]
        ]
        if len(specs) == 2 and all(specs):
            found[node.name] = LayerSteps(*(1.0 / (spec.hi + 1) for spec in specs if spec))
    return found


def pass_without_factors(steps: Sequence[Pass]) -> int | None:
    """The index of the pass that equalizes by noise and has no factors yet."""
    places = (i for i, step in enumerate(steps) if _by_noise(step) and step.factors is None)
    return next(places, None)


def is_measured(step: Pass) -> bool:
    """Whether ranges of channels are measured on samples."""
    return isinstance(step, EqualizeChannels) and step.measured


def with_factors(steps: Sequence[Pass], factors: Factors) -> tuple[Pass, ...]:
    """`steps` with given factors; without any, the pass computes its own."""
    place = pass_without_factors(steps) if factors else None
    return tuple(
        replace(step, factors=factors) if i == place and _by_noise(step) else step
        for i, step in enumerate(steps)
    )


def without_factors(steps: Sequence[Pass]) -> tuple[Pass, ...]:
    """`steps` without the factors that were given to them."""
    return tuple(replace(step, factors=None) if _by_noise(step) else step for step in steps)


def _by_noise(step: Pass) -> TypeGuard[EqualizeChannels]:
    return isinstance(step, EqualizeChannels) and step.noise
