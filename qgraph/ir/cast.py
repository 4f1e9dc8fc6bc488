"""Convert a graph to another float type: float32 on import, float64 to check transforms."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.types import TensorType

FLOATS = ("float16", "float32", "float64")


def cast_floats(graph: Graph, dtype: str) -> Graph:
    """A copy of `graph` whose float inputs, constants and results all have type `dtype`.

    Casts between float types become identities. Unknown ops keep the types
    of their source, between casts.
    """
    return _Casting(graph, dtype).result()


class _Casting:
    def __init__(self, graph: Graph, dtype: str) -> None:
        self.graph, self.dtype = graph, dtype
        self.made = Graph(graph.name)
        self.made.facts, self.made.notes = set(graph.facts), list(graph.notes)
        self.made.unread = dict(graph.unread)
        self.now: dict[str, str] = {}  # values with another name in the copy

    def result(self) -> Graph:
        for node in self.graph.topological():
            if node.op == "opaque":
                self._opaque(node)
            else:
                self.made.insert(self._cast(self._placed(node)))
        self.made.inputs = list(self.graph.inputs)
        self.made.outputs = {p: self.now.get(v, v) for p, v in self.graph.outputs.items()}
        return self.made

    def _placed(self, node: Node) -> Node:
        return replace(node, inputs=tuple(self.now.get(v, v) for v in node.inputs))

    def _cast(self, node: Node) -> Node:
        attrs = dict(node.attrs)
        if node.op == "input" and attrs["type"].dtype in FLOATS:
            attrs["type"] = TensorType(self.dtype, attrs["type"].shape)
        if node.op == "const" and attrs["value"].dtype.name in FLOATS:
            attrs["value"] = attrs["value"].astype(self.dtype)
        if node.op == "cast" and attrs["dtype"] in FLOATS:
            if self.made.types[node.inputs[0]].dtype == self.dtype:
                return replace(node, op="identity", attrs={})
            attrs["dtype"] = self.dtype
        return replace(node, attrs=attrs)

    def _opaque(self, node: Node) -> None:
        """Put the op between casts. The first output keeps its name; `now` has those of others."""
        made, types = self.made, self.graph.types
        inputs = tuple(self._as_it_was(v, types[v].dtype) for v in node.inputs)
        changed = self._to_cast(node)
        if not changed:
            made.insert(replace(node, inputs=inputs))
            return
        first = node.name in changed
        name = made.fresh(f"{node.name}/as_it_was") if first else node.name
        own = replace(node, name=name, inputs=inputs, control=node.control)
        made.insert(own)
        for before, after in zip(node.values, own.values, strict=True):
            if before in changed:
                self.now[before] = made.add(
                    "cast",
                    after,
                    name=before if before == node.name else f"{node_of(before)}/cast",
                    attrs={"dtype": self.dtype},
                )
            elif before != after:
                self.now[before] = after

    def _to_cast(self, node: Node) -> Collection[str]:
        types = self.graph.types
        return {v for v in node.values if types[v].dtype in FLOATS and types[v].dtype != self.dtype}

    def _as_it_was(self, value: str, dtype: str) -> str:
        now = self.now.get(value, value)
        if self.made.types[now].dtype == dtype:
            return now
        return self.made.add(
            "cast", now, name=f"{node_of(value)}/as_it_was", attrs={"dtype": dtype}
        )
