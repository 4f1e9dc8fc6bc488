"""TensorFlow 1 checkpoints: a MetaGraph (x.meta) with its variables (x.index, x.data-*)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qgraph.errors import LoadError, QGraphError, first_line
from qgraph.frontends.tf import graphdef
from qgraph.frontends.tf.ends import find_outputs, no_outputs, resolve
from qgraph.frontends.tf.frozen import Frozen
from qgraph.frontends.tf.node import read_nodes
from qgraph.frontends.tf.variables import Prefix, freeze, split_name


def prefix_of(path: Path) -> Prefix | None:
    """The prefix of a checkpoint, if `path` is that or one of its files."""
    stem, _ = split_name(path.name)
    if stem is not None:
        return Prefix(path.parent, stem)
    prefix = Prefix(path.parent, path.name)
    ends = (".meta", ".index")
    return prefix if not path.exists() and any(prefix.file(e).exists() for e in ends) else None


def files_of(path: Path) -> list[Path]:
    """The files that make up the model at `path`: itself, or those of the checkpoint it names."""
    prefix = prefix_of(path)
    return [path] if prefix is None else prefix.files()


def read(prefix: Prefix, outputs: Sequence[str] | None) -> Frozen:
    """The network of a checkpoint, its variables as constants; no op of the file is run.

    Raises LoadError where files are missing or do not match.
    """
    path = _existing(prefix)
    try:
        meta = graphdef.parse(path.read_bytes(), "MetaGraphDef")
        if meta is None or not meta.graph_def.node:
            raise LoadError("the checkpoint cannot be read: not a MetaGraph", node=str(path))
        nodes = read_nodes(meta.graph_def)
        found = find_outputs(nodes)
        if outputs is None and not found:
            raise no_outputs()
        wanted = [resolve(nodes, o, "output", found)[0] for o in outputs or found]
        saver = meta.saver_def if meta.HasField("saver_def") else None
        frozen = freeze(meta.graph_def, wanted, prefix, saver)
        return Frozen(frozen, (), {} if outputs else {w: w for w in wanted})
    except QGraphError:
        raise
    except Exception as error:  # TensorFlow may raise anything on a foreign graph
        raise LoadError(
            f"the checkpoint cannot be read: {first_line(error)}", node=str(path)
        ) from None


def _existing(prefix: Prefix) -> Path:
    meta, index = (prefix.file(end) for end in (".meta", ".index"))
    for file, holds in ((meta, "the graph"), (index, "the list of variables")):
        if not file.is_file():
            raise LoadError(f"the checkpoint's file with {holds} is missing", node=str(file))
    if not prefix.data_files():
        raise LoadError("the checkpoint's data files are missing", node=f"{prefix}.data-*")
    return meta
