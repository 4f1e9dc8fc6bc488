"""Run a quantized network with some quantizers switched off, to measure the cost of each.

One calibrated graph serves all variants. A variant starts at the first quantizer that differs from
a base run, in which all quantizers are on, or all off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from qgraph.interpret import run_node, run_nodes
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of, value_of
from qgraph.ir.types import Array
from qgraph.numerics import quantized_constant
from qgraph.parallel import over_chunks
from qgraph.progress import Steps, silent_steps
from qgraph.quant.output_error import run_unquantized
from qgraph.quant.samples.data import chunk_at, chunk_count, chunk_inputs
from qgraph.static.agreement import Agreement, SampleTally, decisions, judge, rows_of, tally
from qgraph.stopping import accept_interrupt


@dataclass(frozen=True)
class Variant:
    """All quantizers are `on` or off, except those in `flipped`, which are the opposite."""

    on: bool
    flipped: frozenset[str] = frozenset()


def agreements(
    graph: Graph,
    floating: Graph,
    data: Mapping[str, Array],
    variants: Sequence[Variant],
    on_chunk: Steps = silent_steps,
) -> list[Agreement]:
    """Distance of each variant of `graph` from `floating`, on the samples of `data`.

    graph: calibrated, from `floating`. After Ctrl-C, the result is that of the samples so far; if
    there is none, KeyboardInterrupt is raised.
    """
    switches, chunks = _Switches(graph, floating), chunk_inputs(graph, data)
    count = chunk_count(chunks)
    plans = {on: _BasePlan(switches, on, variants) for on in (False, True)}
    parts: list[list[SampleTally]] = []

    def at(i: int) -> list[SampleTally]:
        feeds = chunk_at(chunks, i)
        wanted: list[Array] = []
        found: dict[Variant, SampleTally] = {}
        for on, plan in plans.items():  # float first: all others are compared with it
            if not plan.variants and on:
                continue
            values = plan.base(feeds)
            wanted = wanted or [values[v] for v in switches.ends]
            rows = rows_of(feeds)
            found.update({v: tally(wanted, ends, rows) for v, ends in plan.run(values)})
        return [found[v] for v in variants]

    with over_chunks(count) as each:
        wave = max(len(os.sched_getaffinity(0)), 1)
        try:
            for start in range(0, count, wave):
                parts += each(at, range(start, min(start + wave, count)))
                on_chunk(len(parts), count)
        except KeyboardInterrupt:
            if not parts:
                raise
            accept_interrupt()
    seen = sum(len(c) for c in next(iter(chunks.values()))[: len(parts)])
    return [judge(graph, switches.ends, found, seen) for found in zip(*parts, strict=True)]


class _Switches:
    """Runs nodes with some quantizers off; quantized and float constants are kept."""

    def __init__(self, graph: Graph, floating: Graph) -> None:
        self.ends = list(dict.fromkeys(decisions(graph)))
        self.order = [n for n in graph.topological() if n.op != "const"]
        self.constants = {n.name: value_of(n) for n in graph.nodes.values() if n.op == "const"}
        self.quantized = {
            node.name: pair
            for node in self.order
            if (pair := _constant_pair(graph, floating, node))
        }

    def behind(self, names: Collection[str]) -> list[Node]:
        """These nodes and all nodes that depend on them."""
        reached: set[str] = set()
        found = []
        for node in self.order:
            if node.name in names or not reached.isdisjoint(node.inputs):
                reached.update(node.values)
                found.append(node)
        return found

    def run(
        self,
        nodes: Sequence[Node],
        values: dict[str, Array],
        is_on: Callable[[str], bool],
        keep: Collection[str],
    ) -> None:
        """Run `nodes` on `values`; results that are no longer used are dropped, except `keep`."""

        def results(node: Node, inputs: list[Array]) -> tuple[Array, ...]:
            on = is_on(node.name)
            if node.name in self.quantized:
                return (self.quantized[node.name][on],)
            return (run_node if on else run_unquantized)(node, inputs)

        for _ in run_nodes(nodes, values, keep, results):
            pass


def _constant_pair(graph: Graph, floating: Graph, node: Node) -> tuple[Array, Array] | None:
    """A quantized constant with its quantizer off and on."""
    held = graph.constant(node.inputs[0]) if node.op == "quantize" else None
    if held is None:
        return None
    return plain_constant(graph, floating, node), quantized_constant(held, spec_of(node))


def plain_constant(graph: Graph, floating: Graph, quantizer: Node) -> Array:
    """The value in the float network of a quantized constant, before any corrections."""
    held = graph.constant(quantizer.inputs[0])
    assert held is not None
    for user in graph.users(quantizer.name):
        twin = floating.nodes.get(user.name)
        # Counted from the end: the bias of a layer norm is the last of three inputs in `floating`.
        place = user.inputs.index(quantizer.name) - len(user.inputs)
        known = twin is not None and -place <= len(twin.inputs)
        value = floating.constant(twin.inputs[place]) if twin and known else None
        if value is not None and value.shape == held.shape:
            return value
    return held


class _BasePlan:
    """One base run, and the variants that start from its values."""

    def __init__(self, switches: _Switches, on: bool, variants: Sequence[Variant]) -> None:
        self.switches = switches
        self.on = on
        self.variants = {v: switches.behind(v.flipped) for v in variants if v.on == on}
        self.keep = {*switches.ends}
        for nodes in self.variants.values():
            made = {value for node in nodes for value in node.values}
            self.keep.update(v for node in nodes for v in node.inputs if v not in made)

    def base(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        values = {**self.switches.constants, **feeds}
        nodes = [n for n in self.switches.order if n.op != "input"]
        self.switches.run(nodes, values, lambda name: self.on, self.keep)
        return values

    def run(self, base: dict[str, Array]) -> Iterator[tuple[Variant, list[Array]]]:
        for variant, nodes in self.variants.items():
            values = dict(base)
            self.switches.run(nodes, values, partial(self._is_on, variant), self.switches.ends)
            yield variant, [values[v] for v in self.switches.ends]

    def _is_on(self, variant: Variant, name: str) -> bool:
        return self.on != (name in variant.flipped)
