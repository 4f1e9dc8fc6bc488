"""Recurrent layers that keep nothing between calls: one step, from a state that is constant.

An exporter that stores the state as a constant, not as an input and an output, writes such layers.
"""

from __future__ import annotations

from qgraph.ir.graph import Graph

NOTE = " has one step and a constant first state: it keeps nothing between calls"


def note_lost_state(graph: Graph, name: str) -> None:
    """Note on the graph that the layer `name` is such a layer."""
    graph.notes.append(f"`{name}`{NOTE}")


def layers_without_state(graph: Graph) -> list[str]:
    """Names of such layers, as they were noted when the graph was read."""
    return [note.removesuffix(NOTE).strip("`") for note in graph.notes if note.endswith(NOTE)]
