"""Measure the cost of each layer: only it quantized, all others, and all layers up to it.

Every quantizer belongs to one part of the network: a layer with its weights, bias and output, or an
input, a sum or a table with its own quantizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qgraph.exact.compare import original
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.structure import TableAttrs
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, Role
from qgraph.progress import Steps, silent_steps
from qgraph.quant.topology import QUANTIZERS
from qgraph.static.agreement import Agreement
from qgraph.static.switched import Variant, agreements


@dataclass(frozen=True)
class Part:
    """A layer or another node, with the quantizers of its `weights`, bias, sums and `output`."""

    name: str
    op: str
    weights: frozenset[str] = frozenset()
    output: frozenset[str] = frozenset()

    @property
    def quantizers(self) -> frozenset[str]:
        return self.weights | self.output


@dataclass(frozen=True)
class Sensitivity:
    """Cost of a part at the outputs: `alone` if only it is quantized, `all_but` if all others are,
    `so_far` if it and all earlier parts are.
    """

    part: Part
    alone: Agreement
    all_but: Agreement
    so_far: Agreement


@dataclass(frozen=True)
class Sensitivities:
    """Sensitivity of all parts, in the order of the network, and of the `whole` network."""

    whole: Agreement
    parts: tuple[Sensitivity, ...]

    def by_harm(self) -> list[Sensitivity]:
        """Parts by the noise that they cause when quantized alone, the worst first."""
        return sorted(self.parts, key=lambda s: (s.alone.sqnr, -s.all_but.sqnr))


def sensitivities(
    graph: Graph,
    floating: Graph,
    data: Mapping[str, Array],
    on_chunk: Steps = silent_steps,
) -> Sensitivities:
    """Quantize each part of `graph` alone, all others, and all up to it, on the samples of `data`.

    graph: calibrated, from `floating`. The work is about 1.5 runs per part. After Ctrl-C, the
    result is that of the samples so far.
    """
    parts = parts_of(graph)
    variants, later = [Variant(True)], frozenset(q for part in parts for q in part.quantizers)
    for part in parts:
        later -= part.quantizers
        variants += [
            Variant(False, part.quantizers),
            Variant(True, part.quantizers),
            Variant(True, later),
        ]
    whole, *found = agreements(graph, floating, data, variants, on_chunk)
    threes = zip(parts, found[::3], found[1::3], found[2::3], strict=True)
    return Sensitivities(whole, tuple(Sensitivity(*three) for three in threes))


def parts_of(graph: Graph) -> list[Part]:
    """The parts, in order; every quantizer is in exactly one."""
    owners: dict[str, str] = {}
    found: dict[str, dict[str, set[str]]] = {}
    for node in graph.topological():
        owner = next((owners[v] for v in node.inputs if v in owners), None)
        if node.op in QUANTIZERS:
            if graph.constant(node.inputs[0]) is not None:
                continue  # it belongs to its user
            name = owner or original(graph, node.name)
            narrow = spec_of(node).role in (Role.INPUT, Role.ACTIVATION)
            _add(found, name, "output" if narrow else "weights", node.name)
            owner = None if narrow else name
        elif node.op not in ("const", "input") and not (owner or op_definition(node.op).moves):
            owner = node.name
        if owner:
            owners.update(dict.fromkeys(node.values, owner))
        for quantizer in map(graph.producer, node.inputs):
            if quantizer.op == "quantize" and graph.constant(quantizer.inputs[0]) is not None:
                _add(found, owner or node.name, "weights", quantizer.name)
    return _without_doubles(graph, found)


def _add(found: dict[str, dict[str, set[str]]], name: str, kind: str, quantizer: str) -> None:
    found.setdefault(name, {}).setdefault(kind, set()).add(quantizer)


def _without_doubles(graph: Graph, found: Mapping[str, Mapping[str, set[str]]]) -> list[Part]:
    """Assign a constant that several parts share to the first of them."""
    taken: set[str] = set()
    parts = []
    for name, kinds in found.items():
        own = {kind: frozenset(names - taken) for kind, names in kinds.items()}
        part = Part(name, _op(graph, name), **own)
        taken |= part.quantizers
        if part.quantizers:
            parts.append(part)
    return parts


def _op(graph: Graph, name: str) -> str:
    node: Node = graph.producer(name)
    return node.typed(TableAttrs).function if node.op == "lookup" else node.op
