"""Rows of constant tables that inputs select: embeddings of words, positions, categories."""

from __future__ import annotations

from qgraph.frontends.site import AnySite

MOST_ROWS = 1 << 24  # float32 holds their indices exactly


def rows_of_table(site: AnySite) -> str | None:
    """An `embedding` for a gather along the first axis, if its first input is a float constant."""
    shape, kind = site.type(0).shape, site.type(1)
    if site.constant(0) is None or not site.type(0).is_float or not shape:
        return None
    if shape[0] is None or shape[0] > MOST_ROWS or kind.dtype not in ("int32", "int64"):
        return None
    return site.emit("embedding", *site.inputs[:2])
