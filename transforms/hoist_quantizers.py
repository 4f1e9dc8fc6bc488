"""Quantize before values are moved, not after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from qgraph.ir.graph import Node, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.reading import padding_value, spec_of
from qgraph.passes import RewritePass
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class HoistQuantizers(RewritePass):
    """Move a quantizer before a pad, reshape, max pool ... of float values.

    These ops then move codes, and the integer part begins at the input of the network; one
    quantizer serves all branches that need the same codes. Refusals: the moved floats have other
    users; padding with a value that may not be a code.
    """

    name: ClassVar[str] = "hoist-quantizers"
    requires: ClassVar[frozenset[str]] = frozenset({"quantized"})

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("hoist", ("quantize",), _hoist),)


def _hoist(rewriter: Rewriter, node: Node) -> bool:
    graph, spec = rewriter.graph, spec_of(node)
    move = graph.producer(node.inputs[0])
    if spec.role != "input" or not op_definition(move.op).moves or len(move.inputs) != 1:
        return False
    if graph.use_count(move.name) > 1:
        return rewriter.refuse(node, f"the floats of `{move.name}` have other users")
    if padding_value(move):
        return rewriter.refuse(node, f"`{move.name}` pads with {padding_value(move)}")
    source = move.inputs[0]
    ready = [u.name for u in graph.users(source) if u.op == "quantize" and spec_of(u) == spec]
    quantized = ready[0] if ready else rewriter.add(
        "quantize", source, name=f"{node_of(source)}/q{spec.bits}", attrs={"spec": spec}
    )  # fmt: skip
    graph.replace(replace(move, inputs=(quantized,)))
    rewriter.added.append(move.name)
    return rewriter.replace_value(node.name, move.name)
