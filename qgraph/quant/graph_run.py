"""Run a graph on one chunk after another; values that depend on no input are computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from qgraph import kernels
from qgraph.interpret import needed_for, run_node
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.reading import only_rounds, value_of
from qgraph.ir.types import Array
from qgraph.quant.code_scales import CodeScales
from qgraph.quant.output_error import run_unquantized
from qgraph.quant.stages import JoinedNodes, linked
from qgraph.quant.thresholds import Range
from qgraph.quant.topology import QUANTIZERS

# Like `run_node`: a node, its inputs, and whether the result may be written into the first input.
RunNode = Callable[[Node, Sequence[Array], bool], tuple[Array, ...]]
# Called with a value that was just computed, and its range if it is known.
OnValue = Callable[[str, Array, Range | None], None]


def _ignore(name: str, x: Array, ends: Range | None) -> None:
    pass


class GraphRun:
    """Computes the values `wanted` of a graph, with the same bits as `qgraph.interpret.evaluate`.

    Nodes that one stage computes run together, in place if no other node uses their input. seen:
    values that are not stored, but passed to `on_value`. Without `quantized`, quantizers are off,
    and a value is passed under the name that `unquantized` returns. It is thread-safe while the
    graph does not change.
    """

    def __init__(
        self,
        graph: Graph,
        wanted: Iterable[str],
        seen: Collection[str] = frozenset(),
        quantized: bool = True,
    ) -> None:
        self.wanted = tuple(dict.fromkeys(wanted))
        self.constants: dict[str, Array] = {}
        self._run = run_node if quantized else _run_unquantized
        names: dict[str, str] = {}
        varying = []
        scales = CodeScales() if quantized else None
        for node in needed_for(graph, {*self.wanted, *seen}):
            if node.op == "const":
                self.constants[node.name] = value_of(node)
            elif node.op != "input":
                if all(v in self.constants for v in node.inputs):
                    results = self._run(node, [self.constants[v] for v in node.inputs], False)
                    self.constants.update(zip(node.values, results, strict=True))
                    if scales is not None:
                        scales.see(node)
                elif only_rounds(node) and not quantized:
                    names[node.name] = names.get(node.inputs[0], node.inputs[0])
                else:
                    varying.append(
                        replace(node, inputs=tuple(names.get(v, v) for v in node.inputs))
                    )
        self._found = {name: names.get(name, name) for name in self.wanted}
        seen = {names.get(name, name) for name in seen}
        uses = Counter(self._found.values())
        uses.update(v for node in varying for v in node.inputs)
        self._links = linked(
            varying, self.constants, lambda value: uses[value] == 1 and value not in seen, scales
        )
        owned: set[str] = set()
        self._in_place: set[str] = set()
        for node in varying:
            if overwrites(node, owned, lambda value: uses[value] == 1):
                self._in_place.add(node.name)
        self._done_with = _last_uses(self._links, {*self._found.values()})

    def __call__(self, feeds: Mapping[str, Array], on_value: OnValue = _ignore) -> dict[str, Array]:
        """The values by name. feeds: an array for each input.

        on_value: called with each input and each value outside of a stage, before the value is
        overwritten.
        """
        values = ChunkValues(self.constants, feeds, self._run)
        for name, x in feeds.items():
            on_value(name, x, None)
        for link, done in zip(self._links, self._done_with, strict=True):
            ends = values.run(link, self._in_place)
            for name in link.values:
                on_value(name, values.made[name], ends)
            for name in done:
                values.made.pop(name, None)
        return {name: values[found] for name, found in self._found.items()}


class ChunkValues:
    """Values for one chunk: `constants`, the `given` ones, and those `made` here."""

    def __init__(
        self,
        constants: Mapping[str, Array],
        given: Mapping[str, Array],
        run: RunNode = run_node,
    ) -> None:
        self.made: dict[str, Array] = {}
        self._constants, self._given, self._run = constants, given, run

    def run(self, link: JoinedNodes, in_place: Collection[str]) -> Range | None:
        """Compute the results of a link, and their range if the stage computes it anyway."""
        if link.stage is not None:
            x, name = self[link.first.inputs[0]], link.nodes[-1].name
            if x.dtype == np.float32 and x.size and link.stage.fits(x):
                own = link.first.name in in_place and x.flags.writeable and x.flags.c_contiguous
                self.made[name], ends = kernels.stage(x, link.stage, x if own else None)
                return ends
        if link.conv is not None:
            x, node = self[link.first.inputs[0]], link.first
            pads = node.typed(ConvAttrs).pads(x.shape[1:3], link.conv.w.shape[:2])
            self.made[node.name] = link.conv(x, pads)
            return None
        for node in link.nodes:
            inputs = [self[v] for v in node.inputs]
            results = self._run(node, inputs, node.name in in_place)
            self.made.update(zip(node.values, results, strict=True))
        return None

    def __getitem__(self, name: str) -> Array:
        if name in self._constants:
            return self._constants[name]
        return self.made[name] if name in self.made else self._given[name]


def unquantized(graph: Graph, value: str) -> str:
    """The value before quantizers that only round; otherwise `value` itself."""
    while only_rounds(node := graph.producer(value)):
        value = node.inputs[0]
    return value


def _run_unquantized(
    node: Node, inputs: Sequence[Array], in_place: bool = False
) -> tuple[Array, ...]:
    if node.op in QUANTIZERS:
        return run_unquantized(node, inputs)
    return run_node(node, inputs, in_place)


def overwrites(node: Node, owned: set[str], has_single_user: Callable[[str], bool]) -> bool:
    """Whether `node` may write into the memory of its first input.

    It may if no other node uses that value or shares its memory. owned: values that share no
    memory; the function adds those of `node`.
    """
    first = node.inputs[0] if node.inputs else ""
    may = first in owned and has_single_user(first)
    if op_definition(node.op).owns:
        owned.update(node.values)
    return may


def _last_uses(links: Sequence[JoinedNodes], kept: Collection[str]) -> list[list[str]]:
    """The values that no later link uses, by link, except those `kept`."""
    last: dict[str, int] = {}
    for i, link in enumerate(links):
        for node in link.nodes:
            last.update(dict.fromkeys((*node.inputs, *node.values), i))
    found: list[list[str]] = [[] for _ in links]
    for name, i in last.items():
        if name not in kept:
            found[i].append(name)
    return found
