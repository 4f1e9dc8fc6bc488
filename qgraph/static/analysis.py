"""Find the layers that cost accuracy, and the causes, as facts for tables, reports and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from qgraph.exact.compare import Measured
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.progress import Steps, silent_steps
from qgraph.static.causes import Cause, causes
from qgraph.static.facts import PartFacts, decibels
from qgraph.static.sensitivity import Part, Sensitivity, sensitivities
from qgraph.static.switched import Variant, agreements

# Enough to compare layers, because noise at the outputs is summed over samples and classes.
SAMPLES = 32
# The number of the worst layers whose causes are examined.
EXPLAINED = 10
WHERE = ("weights", "output")


def analysis(
    graph: Graph,
    floating: Graph,
    measured: Measured,
    data: Mapping[str, Array],
    on_chunk: Steps = silent_steps,
) -> list[PartFacts]:
    """One entry for each part of the network, in the order of cost, the highest first.

    Places and causes are only examined for the worst parts. graph: calibrated, from `floating`.
    """
    found = sensitivities(graph, floating, data, on_chunk).by_harm()
    where = _where(graph, floating, data, [s.part for s in found[:EXPLAINED]])
    facts = []
    for sensitivity in found:
        entry, part = _entry(sensitivity), sensitivity.part
        if part.name in where:
            costs = where[part.name]
            known = causes(graph, floating, part, measured, data)
            rounded = {kind: decibels(sqnr) for kind, sqnr in costs.items()}
            entry = replace(entry, where_db=rounded, reasons=_likely(known, costs))
        facts.append(entry)
    return facts


def _entry(found: Sensitivity) -> PartFacts:
    return PartFacts(
        found.part.name,
        found.part.op,
        decibels(found.alone.sqnr),
        found.alone.top1,
        decibels(found.all_but.sqnr),
        found.all_but.top1,
        decibels(found.so_far.sqnr),
        found.so_far.top1,
        found.alone.samples,
    )


def _where(
    graph: Graph, floating: Graph, data: Mapping[str, Array], parts: list[Part]
) -> dict[str, dict[str, float]]:
    """SQNR at the outputs with each stage of a part quantized alone."""
    stages = [(p, kind, getattr(p, kind)) for p in parts for kind in WHERE if getattr(p, kind)]
    found = agreements(graph, floating, data, [Variant(False, names) for _, _, names in stages])
    where: dict[str, dict[str, float]] = {}
    for (part, kind, _), agreement in zip(stages, found, strict=True):
        where.setdefault(part.name, {})[kind] = agreement.sqnr
    return where


def _likely(known: list[Cause], where: Mapping[str, float]) -> list[str]:
    """Likely reasons. Those of the most costly stage come first; without any, a general one."""
    worst = min(where, key=lambda kind: where[kind])
    if where[worst] == float("inf"):
        return []
    ranked = sorted(known, key=lambda cause: where[cause.where])
    texts = [cause.text for cause in ranked]
    if not any(cause.where == worst for cause in known):
        texts.insert(0, f"nothing stands out in its {worst}: more bits help")
    return texts
