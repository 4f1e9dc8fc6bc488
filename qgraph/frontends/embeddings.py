"""Rows of constant tables that inputs select: embeddings of words, positions, categories."""

from __future__ import annotations

from qgraph.frontends.site import AnySite


def rows_of_table(site: AnySite) -> str | None:
    """An `embedding` for a gather along the first axis, if its first input is a float constant."""
    table, indices = site.type(0), site.type(1)
    if site.constant(0) is None or not table.is_float or not table.shape:
        return None
    if indices.dtype not in ("int32", "int64"):
        return None
    return site.emit("embedding", *site.inputs[:2])
