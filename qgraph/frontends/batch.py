"""Find tensors that share one unknown batch size.

`Reshape(y, [Shape(x)[0], -1])` flattens `y` only if the batch of `y` is the batch of `x`. Both
are traced back to the value where axis 0 originates: through ops that keep axis 0, and through
reshapes that join it with axes of known sizes or split it again.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from qgraph.ir.graph import Graph
from qgraph.ir.ops import op_definition
from qgraph.ir.types import Shape


class RelativeSize(NamedTuple):
    """The size of axis 0 of a value: `times` that of the value `origin`."""

    origin: str
    times: Fraction


class BatchTracker:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._sizes: dict[str, RelativeSize] = {}

    def origin(self, value: str) -> str:
        """The earliest value known to have the same axis 0 as `value`."""
        size = self._size_of(value)
        return size.origin if size.times == 1 else value

    def forget(self, value: str) -> None:
        self._sizes.pop(value, None)

    def _size_of(self, value: str) -> RelativeSize:
        waiting = [value]
        while waiting:
            current = waiting[-1]
            sources = {} if current in self._sizes else self._sources(current)
            unknown = [s for s in sources if s not in self._sizes]
            if unknown:
                waiting += unknown
                continue
            waiting.pop()
            found = {
                RelativeSize(self._sizes[s].origin, self._sizes[s].times * times)
                for s, times in sources.items()
            }
            own = RelativeSize(current, Fraction(1))
            self._sizes.setdefault(current, found.pop() if len(found) == 1 else own)
        return self._sizes[value]

    def _sources(self, value: str) -> dict[str, Fraction]:
        """Inputs of the producer of `value` that have an axis 0 of unknown size.

        Each with the size of axis 0 of `value`, as a multiple of that of the input.
        """
        node, types = self._graph.nodes.get(value), self._graph.types
        if node is None or not node.inputs:
            return {}
        definition, same = op_definition(node.op), Fraction(1)
        if definition.elementwise and len(node.inputs) > 1:
            rank = types[value].rank
            alike = [v for v in node.inputs if types[v].rank == rank and _open(types[v].shape)]
            return dict.fromkeys(alike, same)
        first = types[node.inputs[0]].shape
        if first is None or not _open(first):
            return {}
        if node.op == "reshape":
            times = _ratio(first, types[value].shape)
            return {} if times is None else {node.inputs[0]: times}
        kept = definition.keeps_samples(node.attributes, first)
        return {node.inputs[0]: same} if kept else {}


def _ratio(before: Shape, after: Shape | None) -> Fraction | None:
    """How many rows a reshape makes of each; None where more than axis 0 is unknown."""
    if after is None or not _open(after):
        return None
    sizes = [*before[1:], *after[1:]]
    if any(not size for size in sizes):  # unknown, or without elements
        return None
    return Fraction(_elements(before), _elements(after))


def _elements(shape: Shape) -> int:
    return math.prod(size for size in shape[1:] if size is not None)


def _open(shape: Shape | None) -> bool:
    return bool(shape) and shape is not None and shape[0] is None
