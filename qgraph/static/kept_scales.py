"""Runs on already quantized files whose scales stay as they are."""

from __future__ import annotations

from qgraph.choices import Effort
from qgraph.ir.graph import Graph
from qgraph.ir.reading import marks_of
from qgraph.static.choice import PlanRequest


def may_keep_scales(request: PlanRequest) -> bool:
    """Whether nothing was asked for that chooses other scales: a search, a plan or bits."""
    searches = request.effort not in (None, Effort.PLAIN)
    return not searches and request.plan is None and request.bits is None


def has_kept_scales(graph: Graph) -> bool:
    """Whether a loaded graph has scales from its file."""
    nodes = graph.nodes.values()
    return any(n.op == "quantize" or marks_of(n).grid is not None for n in nodes)
