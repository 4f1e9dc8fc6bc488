"""SavedModel directories, of TensorFlow 2 and 1: the graph of a signature, variables by name.

A SavedModel is a program. Its actions on loading (initialize tables, restore, call functions) are
not run: its graph is read, and its variables come directly from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qgraph.errors import LoadError, QGraphError, UsageError, first_line
from qgraph.files import text_path
from qgraph.foreign import Proto
from qgraph.frontends.tf.frozen import Frozen
from qgraph.frontends.tf.node import parse_ref
from qgraph.frontends.tf.variables import Prefix, freeze

DEFAULT = "serving_default"


def read(path: Path, signature: str | None = None) -> Frozen:
    """A signature of the SavedModel in directory `path`, frozen: the default or only one, if none
    is named.

    Raises LoadError where files are missing, UsageError where it has
    no such signature, or several and none is the default.
    """
    try:
        from tensorflow.python.saved_model.loader_impl import parse_saved_model

        with text_path(path) as place:
            graphs = parse_saved_model(str(place)).meta_graphs
        if not graphs:
            raise LoadError("the SavedModel holds no graph", node=str(path))
        serving = (g for g in graphs if "serve" in g.meta_info_def.tags)
        return _frozen(path, next(serving, graphs[0]), signature)
    except QGraphError:
        raise
    except Exception as error:  # TensorFlow may raise anything on a foreign model
        raise LoadError(
            f"the SavedModel cannot be read: {first_line(error)}", node=str(path)
        ) from None


def _frozen(path: Path, meta_graph: Proto, signature: str | None) -> Frozen:
    signatures = meta_graph.signature_def
    keys = [k for k in sorted(signatures) if not k.startswith("__")]
    key = _signature_key(path, keys, signature)
    outputs = {name: info.name for name, info in sorted(signatures[key].outputs.items())}
    inputs = {name: info.name for name, info in sorted(signatures[key].inputs.items())}
    saver = meta_graph.saver_def if meta_graph.HasField("saver_def") else None
    graph_def = freeze(
        meta_graph.graph_def, list(outputs.values()), Prefix(path / "variables", "variables"), saver
    )
    names = _named_by_signature(graph_def, key, inputs)
    return Frozen(graph_def, names, outputs)


def _named_by_signature(graph_def: Proto, key: str, inputs: Mapping[str, str]) -> tuple[str, ...]:
    """The inputs that are used. TensorFlow 2 names them `SIGNATURE_NAME`; they become `NAME`."""
    nodes = {node.name: node for node in graph_def.node}
    new: dict[str, str] = {}
    for name, tensor in inputs.items():
        node = nodes.get(parse_ref(tensor)[0])
        if node is not None:
            ours = node.name == f"{key}_{name}" and name not in nodes
            new[node.name] = name if ours else node.name
    for node in graph_def.node:
        node.name = new.get(node.name, node.name)
        for i, text in enumerate(node.input):
            source = parse_ref(text.removeprefix("^"))[0]
            if new.get(source, source) != source:
                node.input[i] = text.replace(source, new[source], 1)
    return tuple(new.values())


def _signature_key(path: Path, keys: list[str], wanted: str | None) -> str:
    if wanted is None and DEFAULT in keys:
        return DEFAULT
    if wanted is None and len(keys) == 1:
        return keys[0]
    if wanted in keys:
        return str(wanted)
    if not keys:
        raise LoadError(
            "the SavedModel has no signature",
            node=str(path),
            hint="export it with one: tf.saved_model.save(model, dir, signatures=...)",
        )
    listed = ", ".join(f"`{key}`" for key in keys)
    if wanted is not None:
        raise UsageError(
            f"no signature `{wanted}`", node=str(path), hint=f"its signatures: {listed}"
        )
    raise UsageError(
        f"several signatures, and none is `{DEFAULT}`: {listed}",
        node=str(path),
        hint=f"name one: --signature {keys[0]}",
    )
