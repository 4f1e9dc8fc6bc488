"""Frozen GraphDefs, binary (.pb) and text (.pbtxt)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from qgraph.errors import GraphError, LoadError
from qgraph.foreign import Proto
from qgraph.frontends.other_formats import SUPPORTED
from qgraph.frontends.tf.node import parse_ref


def parse_binary(data: bytes) -> Proto | None:
    """A GraphDef with at least one valid node, or None if `data` is something else."""
    graph_def = parse(data, "GraphDef")
    nodes = () if graph_def is None else graph_def.node
    sound = nodes and all(n.name and n.op and n.op.isprintable() for n in nodes)
    return graph_def if sound else None


def parse(data: bytes, kind: str) -> Proto | None:
    """`data` as the protobuf message `kind` of tf.compat.v1, or None."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    message = getattr(tf.compat.v1, kind)() if kind != "SavedModel" else _saved_model()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return None
    return message


def _saved_model() -> Proto:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    return SavedModel()


def needed_part(graph_def: Proto, outputs: Iterable[str]) -> Proto:
    """The nodes of `graph_def` that the nodes `outputs` depend on, with its functions.

    TensorFlow's `extract_sub_graph` does the same, but prints that it is deprecated.
    Raises GraphError for a node that does not exist.
    """
    nodes = {node.name: node for node in graph_def.node}
    needed: set[str] = set()
    left = list(outputs)
    while left:
        name = left.pop()
        if name in needed:
            continue
        if name not in nodes:
            raise GraphError("the graph has no node of this name", node=name)
        needed.add(name)
        left += [parse_ref(text.removeprefix("^"))[0] for text in nodes[name].input]
    part = type(graph_def)(versions=graph_def.versions, library=graph_def.library)
    part.node.extend(node for node in graph_def.node if node.name in needed)
    return part


def parse_text(path: Path, text: str) -> Proto:
    """A GraphDef in text form. Raises LoadError with the line where it does not parse."""
    import tensorflow as tf
    from google.protobuf import text_format

    graph_def = tf.compat.v1.GraphDef()
    try:
        text_format.Parse(text, graph_def)
    except text_format.ParseError as error:
        raise LoadError(
            f"a text file, but not a GraphDef in text form (line {error})",
            node=str(path),
            hint=SUPPORTED,
        ) from None
    if not graph_def.node:
        raise LoadError("a GraphDef without nodes", node=str(path))
    return graph_def
