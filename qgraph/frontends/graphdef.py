"""Frozen GraphDefs, binary (.pb) and text (.pbtxt)."""

from __future__ import annotations

from pathlib import Path

from qgraph.errors import LoadError
from qgraph.foreign import Proto
from qgraph.frontends.other_formats import SUPPORTED


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
