"""Detect the inputs and outputs of a graph if they are clear, and the nodes between."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from qgraph.errors import GraphError, LoadError, UsageError
from qgraph.frontends.site import Ref
from qgraph.frontends.tf.node import TFNode, parse_ref
from qgraph.frontends.tf.refused import FRAMES, loop_at
from qgraph.ir.order import inputs_first

PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
SOURCES = (*PLACEHOLDERS, "PlaceholderWithDefault", "IteratorGetNext", "OneShotIterator")
# Never results; nodes that only they use are not results either.
EFFECTS = (
    "NoOp", "Assert", "Assign", "AssignAdd", "AssignSub", "AssignVariableOp",
    "AssignAddVariableOp", "AssignSubVariableOp", "Save", "SaveV2", "SaveSlices", "Restore",
    "RestoreV2", "MergeV2Checkpoints", "ShardedFilename", "PrintV2", "ScatterUpdate",
)  # fmt: skip
# Not results either, but their inputs may be: logits under a loss.
LOSSES = (
    "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits", "L2Loss", "InTopK",
    "InTopKV2", "BroadcastGradientArgs",
)  # fmt: skip
NEVER_RESULTS = (
    "Const", "Switch", "RefSwitch", "Variable", "VariableV2", "VarHandleOp", "ReadVariableOp",
    "Shape", "ShapeN", "Size", "Rank", *SOURCES,
)  # fmt: skip


class Linked(Protocol):
    """A node of any format, with its references to others."""

    @property
    def name(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def inputs(self) -> tuple[Ref, ...]: ...
    @property
    def control(self) -> tuple[str, ...]: ...


N = TypeVar("N", bound=Linked)
Users = defaultdict[str, list[str]]  # names of the nodes that use each node's outputs


def find_outputs(nodes: Mapping[str, TFNode]) -> list[str]:
    """Nodes whose results are unused, in file order, without leftovers of training."""
    users: Users = defaultdict(list)
    for node in nodes.values():
        for name, _ in node.inputs:
            users[name].append(node.name)
    training = _downstream(users, (n.name for n in nodes.values() if _is_loss(n)))
    training.update(n.name for n in nodes.values() if n.op == "Print" and not users[n.name])
    leftover = {n.name for n in nodes.values() if _is_effect(n)}
    _add_feeders(nodes, users, leftover, training)
    fed = _downstream(users, (n.name for n in nodes.values() if n.op in SOURCES))
    sinks = [
        n.name
        for n in nodes.values()
        if n.name not in training
        and n.name not in leftover
        and n.op not in NEVER_RESULTS
        and n.dtype() not in ("string", "bool", "resource")
        and all(u in training or u in leftover for u in users[n.name])
    ]
    return [name for name in sinks if name in fed] or sinks


def _is_loss(node: TFNode) -> bool:
    return (
        node.op in LOSSES
        or node.op.endswith("Summary")
        or (node.op.endswith("Grad") and node.op != "ResizeBilinearGrad")
        or node.name.startswith("gradients/")
    )


def _is_effect(node: TFNode) -> bool:
    return node.op in EFFECTS or "Apply" in node.op or node.op.startswith("Queue")


def _downstream(users: Users, seeds: Iterable[str]) -> set[str]:
    """The seeds and all that depends on them."""
    found = set(seeds)
    queue = list(found)
    while queue:
        new = [user for user in users[queue.pop()] if user not in found]
        found.update(new)
        queue += new
    return found


def _add_feeders(
    nodes: Mapping[str, TFNode],
    users: Users,
    leftover: set[str],
    training: set[str],
) -> None:
    """Add nodes to `leftover` that only leftovers use."""
    queue = list(leftover)
    while queue:
        for name, _ in nodes[queue.pop()].inputs:
            if name not in nodes or name in leftover or name in training:
                continue
            if all(user in leftover for user in users[name]):
                leftover.add(name)
                queue.append(name)


def resolve(nodes: Mapping[str, TFNode], name: str, what: str, candidates: Sequence[str]) -> Ref:
    """The tensor that a user named. Raises UsageError with candidates if it does not exist."""
    ref = parse_ref(name)
    if ref[0] in nodes:
        return ref
    near = difflib.get_close_matches(ref[0], list(nodes), n=3)
    listed = ", ".join(f"`{c}`" for c in dict.fromkeys([*candidates[:12], *near]))
    raise UsageError(
        f"the graph has no {what} `{name}`",
        hint=f"candidates: {listed}" if listed else "the graph has no candidates",
    )


def needed(nodes: Mapping[str, N], outputs: Sequence[Ref], cut: Collection[str]) -> list[N]:
    """Every node that `outputs` need, inputs first, without the inputs of nodes in `cut`.

    Raises GraphError at a missing input or a cycle, UnsupportedError at a loop.
    """
    order = inputs_first((name for name, _ in outputs), lambda name: _needs(nodes, name, cut))
    return [nodes[name] for name in order]


def check_whole(nodes: Mapping[str, TFNode]) -> None:
    """Raise GraphError for a missing input or a cycle anywhere in the graph.

    If outputs are detected, a damaged graph must not be read as a smaller one.
    """
    loops = {n.name for n in nodes.values() if n.op in FRAMES}
    try:
        needed(nodes, [(name, 0) for name in nodes], loops)
    except GraphError as error:
        error.hint = "the graph is damaged or incomplete; --outputs selects a complete part"
        raise


def _needs(nodes: Mapping[str, Linked], name: str, cut: Collection[str]) -> list[str]:
    node = nodes[name]
    if name in cut:
        return []
    if node.op in FRAMES:
        raise loop_at(node)
    needs = [ref[0] for ref in node.inputs]
    for need in needs:
        if need not in nodes:
            raise GraphError(
                f"input `{need}` does not exist",
                node=name,
                hint="the graph is damaged or incomplete",
            )
    # Control edges count where they put a node on one side of a branch.
    return [*needs, *(c for c in node.control if _is_pivot(nodes, c))]


def _is_pivot(nodes: Mapping[str, Linked], name: str) -> bool:
    node = nodes.get(name)
    if node is not None and node.op == "Identity" and node.inputs:
        node = nodes.get(node.inputs[0][0])
    return node is not None and node.op == "Switch"


def find_inputs(nodes: Mapping[str, TFNode], order: Sequence[TFNode]) -> list[str]:
    """Placeholders among the needed nodes, in the order of the file."""
    wanted = {n.name for n in order if n.op in PLACEHOLDERS}
    return [name for name in nodes if name in wanted]


def no_outputs() -> LoadError:
    return LoadError(
        "the outputs of the graph cannot be determined", hint="name them with --outputs"
    )
