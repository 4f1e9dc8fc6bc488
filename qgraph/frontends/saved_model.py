"""SavedModel directories, of TensorFlow 2 (functions, resource variables) and of TensorFlow 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qgraph.errors import LoadError, QGraphError
from qgraph.frontends.checkpoint import freeze_session
from qgraph.frontends.frozen import Frozen, freeze_function

DEFAULT = "serving_default"


def read(path: Path) -> Frozen:
    """The default (or only) signature of the SavedModel in directory `path`, frozen.

    Raises LoadError where there is no SavedModel, no such signature, or files are missing.
    """
    if not any((path / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
        metas = sorted(path.glob("*.meta"))
        hint = (
            f"did you mean {metas[0]}?" if metas else "give the directory that holds saved_model.pb"
        )
        raise LoadError("a directory without saved_model.pb", node=str(path), hint=hint)
    try:
        from tensorflow.python.saved_model.loader_impl import parse_saved_model

        graphs = parse_saved_model(str(path)).meta_graphs
        if not graphs:
            raise LoadError("the SavedModel holds no graph", node=str(path))
        if graphs[0].HasField("object_graph_def"):
            return _read_functions(path)
        serving = (g for g in graphs if "serve" in g.meta_info_def.tags)
        return _read_session(path, next(serving, graphs[0]))
    except QGraphError:
        raise
    except Exception as error:  # whatever a foreign model makes of TensorFlow
        raise LoadError(
            f"the SavedModel cannot be read: {_first_line(error)}", node=str(path)
        ) from None


def _read_functions(path: Path) -> Frozen:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))
    key = _signature_key(path, list(loaded.signatures))
    function = loaded.signatures[key]
    return freeze_function(function, sorted(function.structured_outputs))


def _read_session(path: Path, meta_graph: Any) -> Frozen:
    import tensorflow as tf
    from tensorflow.python.util.deprecation import silence

    signatures = meta_graph.signature_def
    key = _signature_key(path, [k for k in signatures if not k.startswith("__")])
    outputs = {name: info.name for name, info in sorted(signatures[key].outputs.items())}
    inputs = [info.name.split(":")[0] for _, info in sorted(signatures[key].inputs.items())]
    tags = list(meta_graph.meta_info_def.tags)
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        with silence():
            tf.compat.v1.saved_model.load(session, tags, str(path))
        graph_def = freeze_session(session, list(outputs.values()))
    used = {node.name for node in graph_def.node}
    return Frozen(graph_def, tuple(i for i in inputs if i in used), outputs)


def _signature_key(path: Path, keys: list[str]) -> str:
    if DEFAULT in keys:
        return DEFAULT
    if len(keys) == 1:
        return keys[0]
    found = ", ".join(keys) or "none"
    raise LoadError(
        f"no `{DEFAULT}` signature, and not one only (found: {found})",
        node=str(path),
        hint="save the model with the signature that is to be quantized",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
