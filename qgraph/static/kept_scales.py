"""Runs on already quantized files whose scales stay as they are."""

from __future__ import annotations

from qgraph.choices import Effort
from qgraph.static.choice import PlanRequest

WITHOUT_DATA = (
    "no data: scales as in the file, others from noise at the inputs; the distance from the float "
    "network was not measured"
)


def may_keep_scales(request: PlanRequest) -> bool:
    """Whether nothing was asked for that chooses other scales: a search, a plan or bits."""
    searches = request.effort not in (None, Effort.PLAIN)
    return not searches and request.plan is None and request.bits is None
