"""Refusals of TensorFlow graphs from any file: layer, reason, advice."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from qgraph.errors import QGraphError, UnsupportedError
from qgraph.foreign import Proto

# Frames of TensorFlow 1.
FRAMES = (
    "Enter", "Exit", "NextIteration", "LoopCond", "RefEnter", "RefExit", "RefNextIteration",
)  # fmt: skip
FUNCTIONAL = ("While", "StatelessWhile")  # written out where the number of steps is known
LOOPS = (*FRAMES, "For", "RemoteCall")
# Recurrent cells in one op, which loop internally.
RECURRENT = ("CudnnRNN", "BlockLSTM")
LISTS = ("TensorList", "EmptyTensorList")
ASSIGNS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
FLOAT_TYPES = (1, 2, 8, 14, 18, 19)  # of types.proto, complex ones among them
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
    for refused in (_loop, _arrays):
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


def is_loop(op: str) -> bool:
    """Whether an op is a loop of TensorFlow 2, or works on lists of tensors, as only loops do."""
    return op in FUNCTIONAL or op.startswith(LISTS)


def _loop(node: Named) -> QGraphError | None:
    """The refusal of a loop; None for other ops."""
    return loop_at(node) if node.op in LOOPS or node.op.startswith(RECURRENT) else None


def _arrays(node: Named) -> QGraphError | None:
    """The refusal of an op on arrays of tensors, which only loops of TensorFlow 1 use."""
    return loop_at(node) if node.op.startswith("TensorArray") else None


def check_inference(nodes: Iterable[Proto], outputs: Collection[str] = ()) -> None:
    """Raise UnsupportedError where a graph updates its variables when it is run.

    Seeds of random numbers, which are integers, may change if nothing that `outputs` need reads
    integers: layers of Keras 3 with dropout change them in inference too.

    nodes: all nodes that run, before variables become constants. outputs: names of nodes.
    """
    several = list(nodes)
    for node in several:
        if node.op in ASSIGNS and not (
            outputs and _holds_integers(node) and not _reads_integers(several, outputs)
        ):
            raise in_training(node) if UPDATES.search(node.name) else _updates(node)


def _holds_integers(node: Proto) -> bool:
    """Whether an op on a variable has its dtype, and it is neither a float nor a complex type."""
    return "dtype" in node.attr and node.attr["dtype"].type not in FLOAT_TYPES


def _reads_integers(nodes: Sequence[Proto], outputs: Collection[str]) -> bool:
    """Whether outputs depend on the value of a variable of integers."""
    known = {node.name: node for node in nodes}
    waiting, seen = list(outputs), set(outputs)
    while waiting:
        node = known.get(waiting.pop())
        if node is None:
            continue
        if node.op in ("ReadVariableOp", "VarHandleOp") and _holds_integers(node):
            return True
        sources = {text.partition(":")[0] for text in node.input if not text.startswith("^")}
        waiting += sources - seen
        seen |= sources
    return False


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


STATE_HINT = "export the model for inference (training=False), with its state as input and output"


def _updates(node: Named) -> UnsupportedError:
    return UnsupportedError(
        f"this layer changes a variable when it is run (`{node.op}` at `{node.name}`)",
        node=layer_of(node.name),
        hint=STATE_HINT,
    )


def changes_variable(variable: str) -> UnsupportedError:
    """The refusal of a Keras model that changes a variable."""
    return UnsupportedError(
        "this variable changes when the model is run", node=variable, hint=STATE_HINT
    )
