"""Put quantizers that must share a scale into groups (docs/numerics.md, section 2).

An op like concat or eltwise add needs its inputs on one scale. Groups are united over the whole
graph (union-find), also through ops that only move values. Every union is logged with the op that
requires it, so that reports can name the cause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from qgraph.errors import ExactnessError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.reading import marks_of, spec_of
from qgraph.ir.states import states_of
from qgraph.passes import Pass
from qgraph.quant.step_states import ends_of
from qgraph.quant.topology import QUANTIZERS, has_integer_form, is_for_sign, sources
from qgraph.rewrite.rewriter import Rewriter
from qgraph.rewrite.trace import SharedScale

if TYPE_CHECKING:
    from networkx.utils import UnionFind


@dataclass(frozen=True)
class MarkScaleGroups(Pass):
    """Write the scale group of every quantizer into its spec.

    A scale that an already quantized file gave to a member is that of the group.
    """

    name: ClassVar[str] = "mark-scale-groups"
    requires: ClassVar[frozenset[str]] = frozenset({"quantized"})
    ensures: ClassVar[frozenset[str]] = frozenset({"scale-groups"})

    def apply(self, rewriter: Rewriter) -> None:
        from networkx.utils import UnionFind  # slow to import

        graph = rewriter.graph
        quantizers = [n.name for n in graph.topological() if n.op in QUANTIZERS]
        joined: UnionFind[str] = UnionFind(quantizers)
        rewriter.rule = "share-scale"
        for node in graph.topological():
            kept = _keeps_scale(graph, node)
            if not kept and not (op_definition(node.op).same_scale and has_integer_form(node)):
                continue
            members = [m for value in node.inputs for m in sources(graph, value)]
            members += [node.name] if kept else []
            if len(members) > 1 and len({joined[m] for m in members}) > 1:
                joined.union(*members)
                forced = tuple(dict.fromkeys(members))
                text = f"forces one scale on {', '.join(forced)}"
                rewriter.log(node, text, SharedScale(node.op, forced))
        rewriter.rule = "state"
        for state in states_of(graph):
            members = [name for names in ends_of(graph, state) for name in names]
            joined.union(*members)
            text = f"a state: one scale for {', '.join(members)}"
            rewriter.log(graph.nodes[state], text, SharedScale("state", tuple(members)))
        self._name_groups(graph, quantizers, joined)

    def _name_groups(self, graph: Graph, quantizers: list[str], joined: UnionFind[str]) -> None:
        members: dict[str, list[str]] = {}
        for name in quantizers:
            members.setdefault(joined[name], []).append(name)
        shared = [names for names in members.values() if len(names) > 1]
        for number, names in enumerate(shared):
            specs = {name: spec_of(graph.nodes[name]) for name in names}
            given = {s.exponent: name for name, s in specs.items() if s.exponent is not None}
            if len(given) > 1:
                found = ", ".join(f"`{name}` 2^-{e}" for e, name in given.items())
                raise ExactnessError(
                    f"shares a scale with others, and the file has several: {found}",
                    node=names[0],
                    hint="quantize the model again: --effort default",
                )
            exponent = next(iter(given), None)
            for name, spec in specs.items():
                graph.set_attrs(name, spec=replace(spec, group=f"g{number}", exponent=exponent))


def _keeps_scale(graph: Graph, node: Node) -> bool:
    """Whether a node is a quantizer on the scale of the codes that it gets."""
    if node.op != "quantize":
        return False
    return marks_of(graph.producer(node.inputs[0])).choice or is_for_sign(graph, node)
