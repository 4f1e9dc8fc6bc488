"""Values of a graph over all samples, chunk by chunk, run when they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from qgraph import kernels
from qgraph.interpret import run_node
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.reading import value_of
from qgraph.ir.types import Array
from qgraph.parallel import Each
from qgraph.quant.data import chunk_count
from qgraph.quant.spill import Shelf
from qgraph.quant.stages import JoinedNodes, linked
from qgraph.quant.thresholds import Ends, ends_of


class GraphValues:
    """`constants` by name; of all else a chunk each of what is still needed.

    inputs: chunks by input name. memory: bytes beyond which chunks go to temporary files, half of
    what is free if not given. Numbers that are not finite pass: readers report them.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Sequence[Array]],
        each: Each,
        memory: int | None = None,
    ) -> None:
        self.constants: dict[str, Array] = {}
        self._each = each
        self._chunks = Shelf(chunk_count(inputs), memory)
        for name, arrays in inputs.items():
            self._chunks.add(name, arrays)
        self._left = Counter(v for node in graph.nodes.values() for v in node.inputs)
        self._graph = graph
        self._owned: set[str] = set()  # values in memory that no other value shares
        self._waiting: list[Node] = []

    def run(self, node: Node) -> None:
        """Run `node`, once, after all that it takes; what depends on data waits."""
        if node.op == "const":
            self.constants[node.name] = value_of(node)
        elif node.op != "input":
            if all(v in self.constants for v in node.inputs):
                results = run_node(node, [self.constants[v] for v in node.inputs])
                self.constants.update(zip(node.values, results, strict=True))
            else:
                self._waiting.append(node)
                if op_definition(node.op).owns:
                    self._owned.update(node.values)
        self._left.subtract(node.inputs)

    def chunks(self, value: str) -> Sequence[Array]:
        """The chunks of a value that depends on data and that a node to come takes."""
        self._catch_up()
        return self._chunks[value]

    def ends(self, value: str) -> Sequence[Ends | None]:
        """Least and greatest value of each chunk of such a value, None where a chunk is empty.

        They are found while the chunk is in cache, where the value is yet to be computed.
        """
        ends = self._catch_up(value)
        if ends is None:
            chunks = self._chunks[value]
            ends = [*self._each(lambda i: ends_of(chunks[i]), range(len(chunks)))]
        return ends

    def mapped(self, value: str, function: Callable[[Array], Array]) -> Sequence[Array]:
        """`function` of each chunk of `value`."""
        chunks, name = self.chunks(value), f"{value} mapped"

        def at(i: int) -> None:
            self._chunks.put(name, i, function(chunks[i]))

        self._at_each_chunk(at)
        found = self._chunks[name]
        del self._chunks[name]
        return found

    def _catch_up(self, asked: str = "") -> Sequence[Ends | None] | None:
        """Run the nodes that wait, one chunk through all of them before the next.

        So a chunk stays in cache on its way from one quantizer to the next. Returns the ends of
        each chunk of the value `asked`, if that is among what was run.
        """
        nodes, self._waiting = self._waiting, []
        if not nodes:
            return None
        made = {v for node in nodes for v in node.values}
        in_place = {node.name for node in nodes if self._may_overwrite(node)}
        kept = [v for v in made if self._left[v]]
        links = linked(nodes, self._graph, self.constants)

        def at(i: int) -> Ends | None:
            values = _Values(self.constants, made, self._chunks, i)
            ends = [values.run(link, in_place) for link in links]
            for v in kept:
                self._chunks.put(v, i, values.made[v])
            if asked not in made:
                return None
            known = ends[-1] if asked in links[-1].values else None
            return known or ends_of(values.made[asked])

        found = [*self._each(at, range(self._chunks.count))]
        for value in [v for v in self._chunks if not self._left[v]]:
            del self._chunks[value]
        return found if asked in made else None

    def _may_overwrite(self, node: Node) -> bool:
        """Whether nothing else takes the first input of `node`, nor shares its memory."""
        first = node.inputs[0] if node.inputs else ""
        return first in self._owned and self._graph.use_count(first) == 1

    def _at_each_chunk(self, function: Callable[[int], None]) -> None:
        for _ in self._each(function, range(self._chunks.count)):
            pass


class _Values:
    """Values at one chunk, `index`; `made` holds those that are computed here."""

    def __init__(
        self, constants: Mapping[str, Array], own: Collection[str], chunks: Shelf, index: int
    ) -> None:
        self.made: dict[str, Array] = {}
        self._constants, self._own, self._chunks, self._index = constants, own, chunks, index

    def run(self, link: JoinedNodes, in_place: Collection[str]) -> Ends | None:
        """Compute the results of a link, and their range where that costs nothing."""
        if link.stage is not None:
            x, name = self._value(link.first.inputs[0]), link.nodes[-1].name
            if x.dtype == np.float32 and x.size:
                own = link.first.name in in_place and x.flags.writeable and x.flags.c_contiguous
                self.made[name], ends = kernels.stage(x, link.stage, x if own else None)
                return ends
        for node in link.nodes:
            inputs = [self._value(v) for v in node.inputs]
            results = run_node(node, inputs, in_place=node.name in in_place)
            self.made.update(zip(node.values, results, strict=True))
        return None

    def _value(self, name: str) -> Array:
        if name in self._constants:
            return self._constants[name]
        return self.made[name] if name in self._own else self._chunks[name][self._index]
