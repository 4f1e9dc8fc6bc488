"""Values of a graph over all samples, computed chunk by chunk when they are requested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from qgraph.interpret import run_node
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import value_of
from qgraph.ir.types import Array
from qgraph.parallel import Each
from qgraph.quant.code_scales import CodeScales
from qgraph.quant.graph_run import ChunkValues, overwrites
from qgraph.quant.samples.data import chunk_count
from qgraph.quant.samples.spill import ChunkStore
from qgraph.quant.stages import linked
from qgraph.quant.thresholds import Range

R = TypeVar("R")


class GraphValues:
    """`constants` by name, and the chunks of all values that are still needed.

    inputs: chunks by input name. memory: bytes above which chunks are stored in temporary files; by
    default half of the free memory. Values may contain NaN and infinity; readers report them.
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
        self._chunks = ChunkStore(chunk_count(inputs), memory)
        for name, arrays in inputs.items():
            self._chunks.add(name, arrays)
        self._left = Counter(v for node in graph.nodes.values() for v in node.inputs)
        self._graph = graph
        self._owned: set[str] = set()  # values in memory that no other value shares
        self._in_place: set[str] = set()
        self._waiting: list[Node] = []
        self._scales = CodeScales()

    def run(self, node: Node) -> None:
        """Run `node` once, after its inputs. A node that depends on data waits until needed."""
        if node.op == "const":
            self.constants[node.name] = value_of(node)
        elif node.op != "input":
            if all(v in self.constants for v in node.inputs):
                results = run_node(node, [self.constants[v] for v in node.inputs])
                self.constants.update(zip(node.values, results, strict=True))
                self._scales.see(node)
            else:
                self._waiting.append(node)
                if overwrites(node, self._owned, self._has_single_user):
                    self._in_place.add(node.name)
        self._left.subtract(node.inputs)

    def varies(self, value: str) -> bool:
        """Whether a value depends on data. All of its inputs must have been run."""
        return value not in self.constants

    def refresh(self, value: str) -> None:
        """Compute a constant and its inputs again, after the graph has changed.

        Call this before the nodes that use it are run.
        """
        node = self._graph.producer(value)
        for source in node.inputs:
            self.refresh(source)
        inputs = [self.constants[source] for source in node.inputs]
        self.constants.update(zip(node.values, run_node(node, inputs), strict=True))
        self._scales.see(node)

    def chunks(self, value: str) -> Sequence[Array]:
        """The chunks of a value that depends on data and that a later node uses, or that was
        just run. The next run may overwrite them.
        """
        self._catch_up(value)
        return self._chunks[value]

    def reduced(self, value: str, function: Callable[[Array, Range | None], R]) -> Sequence[R]:
        """Apply `function` to each chunk of such a value, and to its range if that is known.

        If the value is not computed yet, the function is called while the chunk is in cache.
        """
        if not any(value in node.values for node in self._waiting):
            chunks = self.chunks(value)
            return [*self._each(lambda i: function(chunks[i], None), range(len(chunks)))]
        found: dict[int, R] = {}

        def reduce(i: int, x: Array, ends: Range | None) -> None:
            found[i] = function(x, ends)

        self._catch_up(value, reduce)
        return [found[i] for i in sorted(found)]

    def mapped(self, value: str, function: Callable[[Array], Array]) -> Sequence[Array]:
        """Apply `function` to each chunk of `value`."""
        chunks, name = self.chunks(value), f"{value} mapped"

        def at(i: int) -> None:
            self._chunks.put(name, i, function(chunks[i]))

        self._at_each_chunk(at)
        found = self._chunks[name]
        del self._chunks[name]
        return found

    def _catch_up(
        self, asked: str = "", on_chunk: Callable[[int, Array, Range | None], None] | None = None
    ) -> None:
        """Run the waiting nodes, all of them on one chunk before the next chunk.

        A chunk therefore stays in cache from one quantizer to the next. on_chunk: called with each
        chunk of the value `asked`, which is one of the waiting ones, and its range if known.
        """
        nodes, self._waiting = self._waiting, []
        if not nodes:
            return
        made = {v for node in nodes for v in node.values}
        taken = {v for node in nodes for v in node.inputs} - made - self.constants.keys()
        kept = [v for v in made if self._left[v] or v == asked]
        links = linked(nodes, self.constants, self._has_single_user, self._scales)

        def at(i: int) -> None:
            values = ChunkValues(self.constants, {v: self._chunks[v][i] for v in taken})
            ends = [values.run(link, self._in_place) for link in links]
            for v in kept:
                self._chunks.put(v, i, values.made[v])
            if on_chunk is not None:
                known = ends[-1] if asked in links[-1].values else None
                on_chunk(i, values.made[asked], known)

        self._at_each_chunk(at)
        for value in [v for v in self._chunks if not self._left[v] and v != asked]:
            del self._chunks[value]

    def _has_single_user(self, value: str) -> bool:
        return self._graph.use_count(value) == 1

    def _at_each_chunk(self, function: Callable[[int], None]) -> None:
        for _ in self._each(function, range(self._chunks.count)):
            pass
