"""Find tensors that share one unknown batch size.

`Reshape(y, [Shape(x)[0], -1])` flattens `y` only if the batch of `y` is the batch of `x`. Both
are traced back, through ops that keep axis 0, to the value where that axis originates.
"""

from __future__ import annotations

from qgraph.ir.graph import Graph
from qgraph.ir.ops import op_definition
from qgraph.ir.types import Shape


class BatchTracker:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._origins: dict[str, str] = {}

    def origin(self, value: str) -> str:
        """The earliest value known to have the same axis 0 as `value`."""
        waiting = [value]
        while waiting:
            current = waiting[-1]
            sources = [] if current in self._origins else self._sources(current)
            unknown = [s for s in sources if s not in self._origins]
            if unknown:
                waiting += unknown
                continue
            waiting.pop()
            found = {self._origins[s] for s in sources}
            self._origins.setdefault(current, found.pop() if len(found) == 1 else current)
        return self._origins[value]

    def forget(self, value: str) -> None:
        self._origins.pop(value, None)

    def _sources(self, value: str) -> list[str]:
        """Inputs of the producer of `value` whose axis 0, of unknown size, it keeps."""
        node, types = self._graph.nodes.get(value), self._graph.types
        if node is None or not node.inputs:
            return []
        definition = op_definition(node.op)
        if definition.elementwise and len(node.inputs) > 1:
            rank = types[value].rank
            return [v for v in node.inputs if types[v].rank == rank and _open(types[v].shape)]
        first = types[node.inputs[0]].shape
        if first is None or not _open(first):
            return []
        return [node.inputs[0]] if definition.keeps_samples(node.attributes, first) else []


def _open(shape: Shape | None) -> bool:
    return bool(shape) and shape is not None and shape[0] is None
