"""TensorFlow 1 checkpoints: a MetaGraph (x.meta) with its variables (x.index, x.data-*)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qgraph.errors import LoadError, QGraphError
from qgraph.frontends.ends import find_outputs, no_outputs, resolve
from qgraph.frontends.frozen import Frozen
from qgraph.frontends.tf_node import parse_ref, read_nodes

_PART = re.compile(r"\.(meta|index|data-\d{5}-of-\d{5})$")


def prefix_of(path: Path) -> Path | None:
    """The prefix of a checkpoint, if `path` is that or one of its files."""
    if _PART.search(path.name):
        return path.with_name(_PART.sub("", path.name))
    if path.exists():
        return None
    return (
        path
        if any(path.with_name(path.name + end).exists() for end in (".meta", ".index"))
        else None
    )


def files_of(path: Path) -> list[Path]:
    """The files that make up the model at `path`: itself, or those of the checkpoint it names."""
    prefix = prefix_of(path)
    if prefix is None:
        return [path]
    return [
        p for p in sorted(path.parent.iterdir()) if _PART.sub("", p.name) == prefix.name != p.name
    ]


def read(prefix: Path, outputs: Sequence[str] | None) -> Frozen:
    """The network of a checkpoint, its variables as constants.

    Raises LoadError where files are missing or do not belong together.
    """
    import tensorflow as tf

    meta = _existing(prefix)
    try:
        with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
            saver = tf.compat.v1.train.import_meta_graph(str(meta), clear_devices=True)
            nodes = read_nodes(graph.as_graph_def())
            found = find_outputs(nodes)
            if outputs is None and not found:
                raise no_outputs()
            wanted = [resolve(nodes, o, "output", found)[0] for o in outputs or found]
            (saver or tf.compat.v1.train.Saver()).restore(session, str(prefix))
            return Frozen(
                freeze_session(session, wanted), (), {} if outputs else {w: w for w in wanted}
            )
    except QGraphError:
        raise
    except Exception as error:  # whatever a foreign graph makes of TensorFlow
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LoadError(f"the checkpoint cannot be read: {text}", node=str(meta)) from None


def _existing(prefix: Path) -> Path:
    meta, index = (prefix.with_name(prefix.name + end) for end in (".meta", ".index"))
    for file, holds in ((meta, "the graph"), (index, "the list of variables")):
        if not file.is_file():
            raise LoadError(f"the checkpoint's file with {holds} is missing", node=str(file))
    if not any(prefix.parent.glob(f"{prefix.name}.data-*-of-*")):
        raise LoadError("the checkpoint's data files are missing", node=f"{prefix}.data-*")
    return meta


def freeze_session(session: Any, outputs: Sequence[str]) -> Any:
    """The session's graph with its variables' values as constants."""
    import tensorflow as tf
    from tensorflow.python.util.deprecation import silence

    names = list(dict.fromkeys(parse_ref(o)[0] for o in outputs))
    with silence():
        return tf.compat.v1.graph_util.convert_variables_to_constants(
            session, session.graph.as_graph_def(), names
        )
