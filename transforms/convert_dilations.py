"""Replace space_to_batch -> convolution -> batch_to_space by a dilated convolution."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from qgraph.ir.graph import Node
from qgraph.ir.ops.blocks import BatchToSpaceAttrs, SpaceToBatchAttrs
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.ops.windows import PaddingRule
from qgraph.passes import RewritePass
from qgraph.rewrite.constants import other_users
from qgraph.rewrite.rewriter import Rewriter, Rule

CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
NO_PADDING = (PaddingRule.VALID, ((0, 0), (0, 0)))


@dataclass(frozen=True)
class ConvertDilations(RewritePass):
    """TensorFlow's `atrous` form, with or without a bias inside, becomes one dilated convolution.

    The paddings of one end and the crops of the other give its explicit padding; a crop that cuts
    more than was padded becomes a slice of the input. Refusals: strides, padding inside, unequal
    blocks, another op in between, or a value in between that has other users.
    """

    name: ClassVar[str] = "convert-dilations"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("atrous", ("batch_to_space",), _convert),)


def _convert(rewriter: Rewriter, end: Node) -> bool:
    graph = rewriter.graph
    last = graph.producer(end.inputs[0])
    bias = last if last.op == "bias_add" else None
    conv = graph.producer(bias.inputs[0]) if bias else last
    if conv.op not in CONVOLUTIONS:
        return rewriter.refuse(end, f"it follows `{conv.name}` ({conv.op}), not a convolution")
    start = graph.producer(conv.inputs[0])
    if start.op != "space_to_batch":
        return rewriter.refuse(end, f"`{conv.name}` does not follow a space_to_batch")
    chain = [end, *([bias] if bias else []), conv, start]
    if reason := _decline(conv, start, end):
        return rewriter.refuse(end, reason)
    for user, node in pairwise(chain):
        if reason := other_users(graph, node.name, user.name):
            return rewriter.refuse(end, reason)

    x, attrs = _placed(rewriter, conv, start, end)
    y = rewriter.add(conv.op, x, conv.inputs[1], name=f"{conv.name}/dilated", attrs=attrs)
    if bias:
        y = rewriter.add("bias_add", y, bias.inputs[1], name=f"{bias.name}/dilated")
    return rewriter.replace_value(end.name, y)


def _decline(conv: Node, start: Node, end: Node) -> str:
    into, out = start.typed(SpaceToBatchAttrs).block, end.typed(BatchToSpaceAttrs).block
    window = conv.typed(ConvAttrs)
    if into != out:
        return f"blocks differ: {into} in, {out} out"
    if window.strides != (1, 1):
        return f"`{conv.name}` has strides {window.strides}"
    if window.padding not in NO_PADDING:
        return f"`{conv.name}` pads ({window.padding}) between the blocks"
    return ""


def _placed(
    rewriter: Rewriter, conv: Node, start: Node, end: Node
) -> tuple[str, dict[str, object]]:
    """The input, cut where crops exceed paddings, and the attributes of the dilated convolution."""
    into, crops = start.typed(SpaceToBatchAttrs), end.typed(BatchToSpaceAttrs).crops
    pads, cuts = [], []
    for padding, crop in zip(into.paddings, crops, strict=True):
        rest = [p - c for p, c in zip(padding, crop, strict=True)]
        pads.append((max(rest[0], 0), max(rest[1], 0)))
        cuts.append((max(-rest[0], 0), max(-rest[1], 0)))
    x = start.inputs[0]
    if any(n for cut in cuts for n in cut):
        whole = (None, None)
        spans = [whole, *((before, -after or None) for before, after in cuts), whole]
        begin, finish = zip(*spans, strict=True)
        cut_attrs = {"begin": begin, "end": finish, "strides": (1, 1, 1, 1)}
        x = rewriter.add("slice", x, name=f"{conv.name}/cut", attrs=cut_attrs)
    inner = conv.typed(ConvAttrs).dilations
    dilations = [b * d for b, d in zip(into.block, inner, strict=True)]
    return x, {**conv.attrs, "padding": tuple(pads), "dilations": tuple(dilations)}
