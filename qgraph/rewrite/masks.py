"""Masks: constant addends of scores that take elements out of a softmax (docs/numerics.md, 8)."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.types import Array

EXCLUDED = -64.0  # an addend from here on leaves no share: exp(-64) is 2^-92
FAR = -(2.0**100)  # stands for all of these, and saturates at any exponent
SUMS = ("add", "bias_add")
OF_INTEGERS = "/mask_of_integers"  # ends the name of a condition that was integers 0 and 1
MASK_BITS, WIDER = 15, 2  # of the codes of a mask, or so many more than scores have


def parts_of(addend: Array) -> tuple[Array, Array] | None:
    """A constant as a mask, whose numbers are 0 or `FAR`, and its other numbers.

    None if it takes no element out, or has numbers that no mask has.
    """
    excluded = addend <= EXCLUDED
    if not excluded.any() or np.isnan(addend).any() or np.isposinf(addend).any():
        return None
    zero, far = addend.dtype.type(0), addend.dtype.type(FAR)
    return np.where(excluded, far, zero), np.where(excluded, zero, addend)


def leaves_no_share(addend: Array | None) -> bool:
    """Whether a constant takes elements out of a softmax, whatever the scores are."""
    return addend is not None and bool((addend <= EXCLUDED).any() or not np.isfinite(addend).all())


def is_mask(addend: Array) -> bool:
    """Whether a constant looks like a mask, or has numbers that no scale of scores can hold."""
    values = np.unique(addend)
    return bool(len(values) == 2 and values[0] < 0 == values[1]) or leaves_no_share(addend)


def softmaxes_of(graph: Graph) -> frozenset[str]:
    return frozenset(node.name for node in graph.nodes.values() if node.op == "softmax")


def masked_scores(
    graph: Graph, node: Node, softmaxes: Collection[str]
) -> tuple[str, Array, Array] | None:
    """The scores that a sum with a constant masks for these softmaxes, and `parts_of` it."""
    for scores, other in (node.inputs, node.inputs[::-1]):
        addend = graph.constant(other) if node.op in SUMS else None
        parts = None if addend is None or addend.dtype.kind != "f" else parts_of(addend)
        if parts is None or graph.types[scores] != graph.types[node.name]:
            continue
        masks = only_for(graph, node.name, softmaxes)
        return (scores, *parts) if masks and not masks_all(graph, node.name, parts[0] < 0) else None
    return None


def masks_all(graph: Graph, value: str, masked: Array) -> bool:
    """Whether a constant mask takes all elements out of a softmax that `value` leads to.

    masked: where it takes them out, broadcast to the shape of `value`. Such softmaxes depend on how
    the mask is written: on rounded sums, or on equal numbers.
    """
    sizes = [size or 1 for size in graph.types[value].shape or ()]
    whole = np.broadcast_to(masked, np.broadcast_shapes(sizes, masked.shape))
    for user in graph.users(value):
        made = whole
        if isinstance(user.attributes, AxisAttrs) and user.op == "softmax":
            if whole.all(axis=user.attributes.axis).any():
                return True
            continue
        evaluate = op_definition(user.op).evaluate
        if op_definition(user.op).moves and evaluate is not None:
            made = np.asarray(evaluate(user.attributes, [whole]))
        if masks_all(graph, user.name, made):
            return True
    return False


def only_for(graph: Graph, value: str, softmaxes: Collection[str]) -> bool:
    """Whether a value is only used by these softmaxes, directly, moved or with another addend."""
    users = graph.users(value)
    return (
        bool(users)
        and not graph.is_output(value)
        and all(
            user.name in softmaxes
            or (_passes(graph, user) and only_for(graph, user.name, softmaxes))
            for user in users
        )
    )


def _passes(graph: Graph, node: Node) -> bool:
    if op_definition(node.op).moves:
        return len(node.inputs) == 1
    return node.op == "add" and any(graph.constant(v) is not None for v in node.inputs)
