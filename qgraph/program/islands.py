"""Float islands: what the host computes between two segments of the integer program."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from qgraph.exact.float_parts import float_between
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import kind_of
from qgraph.program.program import Entry, Program
from qgraph.program.segments import segments
from qgraph.quant.topology import has_integer_form


@dataclass(frozen=True)
class IslandOp:
    """A float op of an island."""

    name: str
    op: str


@dataclass(frozen=True)
class IslandEntry:
    """An island in a file: the float ops, the values that they take, and the codes they end in."""

    ops: Sequence[IslandOp]
    reads: Sequence[str]
    feeds: Sequence[str]


@dataclass(frozen=True)
class Island:
    """Float ops, in order, from codes of exits of earlier segments to entries of a later one.

    nodes: the ops. reads: exits whose values they take, and inputs of the network. feeds: the
    entries whose sources they compute.
    """

    nodes: tuple[Node, ...]
    reads: tuple[str, ...]
    feeds: tuple[Entry, ...]

    @property
    def causes(self) -> list[Node]:
        """The ops that have no integer form; with one, the island would close."""
        return [node for node in self.nodes if not has_integer_form(node)]

    def facts(self) -> IslandEntry:
        """The island by names, for files."""
        ops = [IslandOp(node.name, kind_of(node)) for node in self.nodes]
        return IslandEntry(ops, self.reads, [entry.tensor for entry in self.feeds])


def islands(graph: Graph, program: Program) -> tuple[Island, ...]:
    """The islands of a calibrated graph with this program: one before each segment but the first.

    Ops that depend on inputs of the network only are not part of them.
    """
    between = {node.name for node in float_between(graph)}
    first, *later = segments(program)
    known, entered, found = {*program.exits}, {e.tensor for e in first.entries}, []
    for part in later:
        feeds = tuple(e for e in part.entries if e.segment and e.tensor not in entered)
        entered |= {entry.tensor for entry in feeds}
        nodes = needed(graph, (e.source for e in feeds), known)
        nodes = [node for node in nodes if node.name in between]
        made = {value for node in nodes for value in node.values}
        read = dict.fromkeys(v for node in nodes for v in node.inputs)
        reads = [v for v in read if v not in made and (v in program.exits or v in graph.inputs)]
        known |= made
        found.append(Island(tuple(nodes), tuple(reads), feeds))
    return tuple(found)


def needed(graph: Graph, wanted: Iterable[str], given: Collection[str]) -> list[Node]:
    """The nodes that compute `wanted` from inputs and the values `given`, in order."""
    needs = {v for v in wanted if v not in given}
    found = []
    for node in reversed(graph.topological()):
        if node.op != "input" and not needs.isdisjoint(node.values):
            found.append(node)
            needs.update(v for v in node.inputs if v not in given)
    return found[::-1]


def last_exits(graph: Graph, program: Program) -> list[str]:
    """The exits that outputs of the network are computed from without another entry."""
    found: set[str] = set()
    waiting, seen = [*graph.outputs.values()], set[str]()
    while waiting:
        value = waiting.pop()
        if value in program.exits:
            found.add(value)
        elif value not in seen:
            seen.add(value)
            waiting += graph.producer(value).inputs
    return [name for name in program.exits if name in found]
