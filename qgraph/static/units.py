"""Layers whose weight bits are chosen, and profiles with chosen bits."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qgraph.ir.graph import Graph
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.reading import spec_if_any, spec_of, value_of
from qgraph.ir.types import Role
from qgraph.passes import PassManager
from qgraph.pipelines import USUAL, Pipeline
from qgraph.quant.bits import Bits, Budget, check_budgets
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import Override, Profile

WIDTHS = (2, 4, 8, 16)
MIXED = "-mixed"


@dataclass(frozen=True)
class Unit:
    """Layers that share one tensor of `size` weights, and so its bits."""

    layers: tuple[str, ...]
    size: int


def uniform(profile: Profile, width: int) -> Profile:
    """All weights of `width` bits, except layers that the profile names."""
    return replace(profile, bits=replace(profile.bits, weight=width, weight_ends=width))


def overridden(profile: Profile, units: Sequence[Unit], bits: Bits) -> Profile:
    """`profile` with weight bits for every layer; activations do not change."""
    own = tuple(
        Override(glob.escape(name), weight, profile.override(name).activation)
        for unit, weight in zip(units, bits, strict=True)
        for name in unit.layers
    )
    base, widths = profile.name.removesuffix(MIXED), ", ".join(map(str, sorted(set(bits))))
    return replace(
        profile,
        name=base + MIXED,
        description=f"weights of {widths} bits, chosen layer by layer; otherwise like {base}",
        overrides=(*own, *profile.overrides),
    )


def units_of(graph: Graph, floating: Graph) -> tuple[Unit, ...]:
    """Layers whose weight bits can be chosen, in order; layers with shared weights form a unit."""
    found: dict[str, list[str]] = {}
    for node in graph.topological():
        if node.op not in COMPUTE or node.name not in floating.nodes:
            continue
        spec = spec_if_any(graph.producer(node.inputs[1]))
        if spec is not None and spec.role == Role.WEIGHT:
            found.setdefault(floating.nodes[node.name].inputs[1], []).append(node.name)
    sizes = {name: value_of(floating.nodes[name]).size for name in found}
    return tuple(Unit(tuple(layers), int(sizes[name])) for name, layers in found.items())


def units_by(
    loaded: Graph, profile: Profile, plan: Plan, pipeline: Pipeline = USUAL
) -> tuple[Unit, ...]:
    """The units of the network that `plan` makes from `loaded`, without data."""
    graph = loaded.copy()
    PassManager(pipeline.prepare(plan)).run(graph)
    floating = graph.copy()
    PassManager(pipeline.insert(profile)).run(graph)
    return units_of(graph, floating)


def bits_of(graph: Graph, units: Sequence[Unit]) -> Bits:
    """The bits of weights in a graph with quantizers."""
    weights = (graph.producer(graph.nodes[unit.layers[0]].inputs[1]) for unit in units)
    return tuple(spec_of(quantizer).bits for quantizer in weights)


def fewest(profile: Profile, units: Sequence[Unit]) -> Bits:
    """The fewest bits of each unit; those of the profile if it sets them."""
    return tuple(profile.override(unit.layers[0]).weight or WIDTHS[0] for unit in units)


def widest_within(
    loaded: Graph, profile: Profile, budget: Budget, pipeline: Pipeline = USUAL
) -> Profile:
    """`profile` with the most bits that all layers can have, to search a plan with."""
    units = units_by(loaded, profile, PLAIN, pipeline)
    sizes = [unit.size for unit in units]
    check_budgets([budget], sizes, fewest(profile, units))
    alike = [width for width in WIDTHS if width * sum(sizes) <= budget.limit(sizes)]
    return uniform(profile, max(alike, default=WIDTHS[0]))


def quantizers_of(graph: Graph, unit: Unit) -> frozenset[str]:
    """The quantizers of the unit's weights."""
    return frozenset(graph.nodes[name].inputs[1] for name in unit.layers)
