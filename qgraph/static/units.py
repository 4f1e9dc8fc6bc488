"""Layers whose weight bits are chosen, tables beside them, and profiles with chosen bits."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.reading import spec_if_any, spec_of, value_of
from qgraph.ir.types import Role
from qgraph.passes import PassManager
from qgraph.pipelines import USUAL, Pipeline
from qgraph.quant.bits import Bits, Budget, check_budgets, cost
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import Override, Profile

WIDTHS = (2, 4, 8, 16)
MIXED = "-mixed"
TABLE = "embedding"


@dataclass(frozen=True)
class Unit:
    """Layers that share one tensor of `size` weights, and so its bits.

    fixed: the bits of a table of an embedding, which has those of activations; None for layers.
    """

    layers: tuple[str, ...]
    size: int
    fixed: int | None = None


def uniform(profile: Profile, width: int) -> Profile:
    """All weights of `width` bits, except layers that the profile names."""
    return replace(profile, bits=replace(profile.bits, weight=width, weight_ends=width))


def overridden(profile: Profile, units: Sequence[Unit], bits: Bits) -> Profile:
    """`profile` with weight bits for every layer; activations do not change."""
    own = tuple(
        Override(glob.escape(name), weight, profile.override(name).activation)
        for unit, weight in zip(units, bits, strict=True)
        for name in (unit.layers if unit.fixed is None else ())
    )
    base, widths = profile.name.removesuffix(MIXED), ", ".join(map(str, sorted(set(bits))))
    return replace(
        profile,
        name=base + MIXED,
        description=f"weights of {widths} bits, chosen layer by layer; otherwise like {base}",
        overrides=(*own, *profile.overrides),
    )


def units_of(graph: Graph, floating: Graph) -> tuple[Unit, ...]:
    """Layers with weights and embeddings, in order; those that share weights form a unit."""
    found: dict[tuple[str, int | None], list[str]] = {}
    for node in graph.topological():
        if node.op not in (*COMPUTE, TABLE) or node.name not in floating.nodes:
            continue
        spec = spec_if_any(graph.producer(_weights(node)))
        if spec is not None and spec.role == Role.WEIGHT:
            fixed = spec.bits if node.op == TABLE else None
            found.setdefault((_weights(floating.nodes[node.name]), fixed), []).append(node.name)
    sizes = {name: int(value_of(floating.nodes[name]).size) for name, _ in found}
    return tuple(Unit(tuple(names), sizes[of], fixed) for (of, fixed), names in found.items())


def _weights(layer: Node) -> str:
    return layer.inputs[0 if layer.op == TABLE else 1]


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
    weights = (graph.producer(_weights(graph.nodes[unit.layers[0]])) for unit in units)
    return tuple(spec_of(quantizer).bits for quantizer in weights)


def fewest(profile: Profile, units: Sequence[Unit]) -> Bits:
    """The fewest bits of each unit; those of the profile if it sets them."""
    given = (unit.fixed or profile.override(unit.layers[0]).weight for unit in units)
    return tuple(bits or WIDTHS[0] for bits in given)


def widest_within(
    loaded: Graph, profile: Profile, budget: Budget, pipeline: Pipeline = USUAL
) -> Profile:
    """`profile` with the most bits that all layers can have, to search a plan with."""
    units = units_by(loaded, profile, PLAIN, pipeline)
    sizes = [unit.size for unit in units]
    check_budgets([budget], sizes, fewest(profile, units))
    alike = [
        width
        for width in WIDTHS
        if cost([unit.fixed or width for unit in units], sizes) <= budget.limit(sizes)
    ]
    return uniform(profile, max(alike, default=WIDTHS[0]))


def quantizers_of(graph: Graph, unit: Unit) -> frozenset[str]:
    """The quantizers of the unit's weights."""
    return frozenset(_weights(graph.nodes[name]) for name in unit.layers)
