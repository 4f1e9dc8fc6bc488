"""Refusals of TensorFlow graphs from any file: layer, reason, advice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from qgraph.errors import QGraphError, UnsupportedError
from qgraph.foreign import Proto

# Frames of TensorFlow 1, and the functional loops of TensorFlow 2.
FRAMES = (
    "Enter", "Exit", "NextIteration", "LoopCond", "RefEnter", "RefExit", "RefNextIteration",
)  # fmt: skip
LOOPS = (*FRAMES, "While", "StatelessWhile", "For", "RemoteCall")
# Recurrent cells in one op, which loop internally.
RECURRENT = ("CudnnRNN", "BlockLSTM")
ASSIGNS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
# Names of ops by which a batch norm in training mode updates its moving averages.
UPDATES = re.compile(r"AssignNewValue|AssignMovingAvg|moving_(mean|variance)")
# Parts of node names that TensorFlow adds around and inside a layer.
ADDED = re.compile(r"(Stateful)?PartitionedCall(_\d+)?|TensorArray\w*|TensorList\w*|while(_\d+)?")


class Named(Protocol):
    """A node of a GraphDef, as it is or as `TFNode`."""

    @property
    def name(self) -> str: ...
    @property
    def op(self) -> str: ...


def check_loops(nodes: Iterable[Named]) -> None:
    """Raise UnsupportedError for a loop among the nodes that outputs need.

    Loops are reported first, because their lists and arrays come before them in the graph.
    """
    several = list(nodes)
    for refused in (_loop, _lists):
        for node in several:
            error = refused(node)
            if error is not None:
                raise error


def layer_of(name: str) -> str:
    """The user's layer: the part of a node's name before those that TensorFlow adds."""
    parts = name.split("/")
    first = next((i for i, part in enumerate(parts) if not ADDED.fullmatch(part)), None)
    if first is None or 0 < first == len(parts) - 1:
        return name
    rest = (i for i in range(first, len(parts)) if ADDED.fullmatch(parts[i]))
    end = next(rest, len(parts) - 1 or 1)
    return "/".join(parts[first : max(end, first + 1)])


def loop_at(node: Named) -> UnsupportedError:
    """The refusal of a loop, with advice."""
    return UnsupportedError(
        f"this layer is a loop (`{node.op}` at `{node.name}`), like LSTM and GRU layers; "
        "a fixed-point network has a fixed number of steps, all of them written out",
        node=layer_of(node.name),
        hint="build the Keras layer with unroll=True and a known number of time steps, and load "
        "the weights again; or leave the loop out: --inputs and --outputs",
    )


def _loop(node: Named) -> QGraphError | None:
    """The refusal of a loop; None for other ops."""
    return loop_at(node) if node.op in LOOPS or node.op.startswith(RECURRENT) else None


def _lists(node: Named) -> QGraphError | None:
    """The refusal of an op on lists or arrays of tensors, which only loops use; None for others."""
    return loop_at(node) if node.op.startswith(("TensorList", "TensorArray")) else None


def check_inference(nodes: Iterable[Named]) -> None:
    """Raise UnsupportedError where a graph updates its variables when it is run.

    nodes: all nodes that run, before variables become constants.
    """
    for node in nodes:
        if node.op in ASSIGNS:
            raise in_training(node) if UPDATES.search(node.name) else _updates(node)


def nodes_run(graph_def: Proto) -> Iterator[Proto]:
    """The nodes of a graph and of all functions in its library."""
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def in_training(node: Named) -> UnsupportedError:
    """The refusal of a batch norm in training mode, with advice."""
    parts = node.name.split("/")
    kept = [p for p in parts if not p.startswith(("FusedBatchNorm", "Assign"))]
    return UnsupportedError(
        f"this batch norm runs in training mode (`{node.name}`): it normalizes by the batch, so "
        "the result for a sample depends on the other samples",
        node=layer_of("/".join([*(kept or parts), node.op])),
        hint="build the model again without training=True (or with training=False), copy the "
        "weights with set_weights, and save that",
    )


def _updates(node: Named) -> UnsupportedError:
    return UnsupportedError(
        f"this layer changes a variable when it is run (`{node.op}` at `{node.name}`)",
        node=layer_of(node.name),
        hint="export the model for inference (training=False), with its state as input and output",
    )
