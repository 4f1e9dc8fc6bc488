"""Keep signals in the form of images of height 1 between layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops.attributes import AxesAttrs, AxisAttrs
from qgraph.passes import RewritePass
from qgraph.rewrite.elementwise import BINARY, UNARY
from qgraph.rewrite.rewriter import Rewriter, Rule


@dataclass(frozen=True)
class SinkSqueezes(RewritePass):
    """Move each squeeze below the elementwise ops after it; remove it when it meets its inverse.

    A layer on signals is a layer on images between `expand_dims` and `squeeze`: otherwise
    they would separate the activation from its layer. Squeezes move in one direction, so it ends.
    """

    name: ClassVar[str] = "sink-squeezes"

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule("merge", ("reshape",), _merge),
            Rule("cancel", ("expand_dims",), _cancel),
            Rule("unary", UNARY, _unary),
            Rule("binary", BINARY, _binary),
        )


def _squeezed(rewriter: Rewriter, value: str) -> tuple[str, tuple[int, ...]] | None:
    """The squeezed value, and its axes from the front."""
    node = rewriter.graph.producer(value)
    shape = rewriter.graph.types[node.inputs[0]].shape if node.op == "squeeze" else None
    if shape is None:
        return None
    return node.inputs[0], tuple(sorted(a % len(shape) for a in node.typed(AxesAttrs).axes))


def _merge(rewriter: Rewriter, node: Node) -> bool:
    found = _squeezed(rewriter, node.inputs[0])
    return found is not None and rewriter.put(replace(node, inputs=(found[0],)))


def _cancel(rewriter: Rewriter, node: Node) -> bool:
    found, rank = _squeezed(rewriter, node.inputs[0]), rewriter.graph.types[node.name].rank
    if found is None or rank is None or found[1] != (node.typed(AxisAttrs).axis % rank,):
        return False
    return rewriter.replace_value(node.name, found[0])


def _sink(rewriter: Rewriter, node: Node, inputs: tuple[str, ...], axes: tuple[int, ...]) -> bool:
    inner = rewriter.add(node.op, *inputs, name=f"{node.name}/unsqueezed", attrs=node.attrs)
    return rewriter.put(Node(node.name, "squeeze", (inner,), {"axes": axes}, node.control))


def _alone(rewriter: Rewriter, value: str) -> bool:
    return rewriter.graph.use_count(value) == 1


def _unary(rewriter: Rewriter, node: Node) -> bool:
    found = _squeezed(rewriter, node.inputs[0])
    if found is None or not _alone(rewriter, node.inputs[0]):
        return False
    return _sink(rewriter, node, (found[0],), found[1])


def _binary(rewriter: Rewriter, node: Node) -> bool:
    """Whether both are squeezed in the same way, or one of them is a constant."""
    graph = rewriter.graph
    squeezed = [_squeezed(rewriter, v) for v in node.inputs]
    first = next((s for s in squeezed if s is not None), None)
    if first is None:
        return False
    rank, before = graph.types[node.name].rank, graph.types[first[0]].rank
    if rank is None or before is None or rank != before - len(first[1]):
        return False
    inputs, last = [], max(first[1], default=-1)
    for value, found in zip(node.inputs, squeezed, strict=True):
        constant = graph.constant(value)
        if found is not None and found[1] == first[1] and graph.types[found[0]].rank == before:
            inputs.append(found[0])
        elif constant is not None and constant.ndim < 2 and last < before - constant.ndim:
            inputs.append(value)
        elif constant is not None:
            whole = constant.reshape((1,) * (rank - constant.ndim) + constant.shape)
            wide = np.expand_dims(whole, first[1])
            inputs.append(rewriter.const(wide, f"{value}/unsqueezed"))
        else:
            return False
    return _sink(rewriter, node, tuple(inputs), first[1])
