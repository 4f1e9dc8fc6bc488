"""Read variables of a graph from its checkpoint by name; no op of the file is run."""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qgraph.errors import LoadError
from qgraph.foreign import Proto, TFModule
from qgraph.frontends.site import Ref
from qgraph.frontends.tf.graphdef import needed_part
from qgraph.frontends.tf.inline import inline_calls
from qgraph.frontends.tf.node import DTYPES, TFNode, decode_constant, parse_ref, read_nodes
from qgraph.frontends.tf.refused import check_inference
from qgraph.ir.types import Array

VARIABLES = ("Variable", "VariableV2", "VarHandleOp")
ASSIGNS = ("Assign", "AssignVariableOp")
PASSED = ("Identity", "IdentityN")


_PART = re.compile(r"\.(meta|index|data-\d{5}-of-\d{5})$")


@dataclass(frozen=True)
class Prefix:
    """Common prefix of a checkpoint's files; `stem` is empty for a file `.meta`."""

    folder: Path
    stem: str

    def __str__(self) -> str:
        """The prefix in the form that TensorFlow expects."""
        return os.path.join(self.folder, self.stem)

    def file(self, end: str) -> Path:
        return self.folder / f"{self.stem}{end}"

    def files(self) -> list[Path]:
        """The existing files."""
        return [p for p in sorted(self.folder.iterdir()) if split_name(p.name)[0] == self.stem]

    def data_files(self) -> list[Path]:
        """The existing files with values."""
        return [p for p in self.files() if split_name(p.name)[1].startswith(".data-")]


def split_name(name: str) -> tuple[str | None, str]:
    """The stem and the end of the name of a checkpoint's file; no stem for others."""
    found = _PART.search(name)
    return (name[: found.start()], found[0]) if found else (None, "")


@dataclass(frozen=True)
class CheckpointEntry:
    """Place of a variable in a checkpoint: a tensor's name, and which part of it."""

    key: str
    part: str = ""  # `10 4 0,5:0,4`: the whole shape, then start and length on each axis


def freeze(graph_def: Proto, outputs: Sequence[str], prefix: Prefix, saver: Proto | None) -> Proto:
    """The part of `graph_def` that `outputs` need, with its variables as constants.

    `prefix` names the checkpoint; `saver` is the file's SaverDef, whose restore op states which
    tensor belongs to which variable. Raises LoadError for a variable that the checkpoint lacks
    or holds in another shape or dtype, UnsupportedError for a graph that updates variables.
    """
    from tensorflow.python.framework import convert_to_constants

    names = list(dict.fromkeys(parse_ref(output)[0] for output in outputs))
    needed = inline_calls(needed_part(graph_def, names))
    check_inference(needed.node, names)
    _fill_defaults(needed)
    variables = [node for node in read_nodes(needed).values() if node.op in VARIABLES]
    if not variables:
        return needed
    found = _values(variables, _restored(graph_def, saver), prefix)
    data = convert_to_constants._ConverterData(needed)
    for node in variables:
        data.tensor_data[node.name] = convert_to_constants._TensorData(
            numpy=found[node.name], dtype=node.proto.attr["dtype"].type, index=None
        )
    return convert_to_constants._replace_variables_by_constants(data)[0]


def _fill_defaults(graph_def: Proto) -> None:
    """Add attributes that exporters omit where they have their defaults."""
    from tensorflow.python.framework import op_def_registry

    bodies = (function.node_def for function in graph_def.library.function)
    for nodes in (graph_def.node, *bodies):
        for node in nodes:
            definition = op_def_registry.get(node.op)
            for attr in definition.attr if definition is not None else ():
                if attr.HasField("default_value") and attr.name not in node.attr:
                    node.attr[attr.name].CopyFrom(attr.default_value)


# -- which tensor belongs to which variable ------------------------------------------------------


def _restored(graph_def: Proto, saver: Proto | None) -> Mapping[str, CheckpointEntry]:
    """Entries that the restore op would assign, by variable; empty without one."""
    name = parse_ref(saver.restore_op_name)[0] if saver is not None else ""
    if not any(node.name == name for node in graph_def.node):
        return {}
    nodes = read_nodes(inline_calls(needed_part(graph_def, [name])))
    found: dict[str, CheckpointEntry] = {}
    for node in nodes.values():
        if node.op not in ASSIGNS or len(node.inputs) < 2:
            continue
        variable, _ = _origin(nodes, node.inputs[0])
        source, index = _origin(nodes, node.inputs[1])
        if variable.op in VARIABLES and source.op == "RestoreV2" and len(source.inputs) == 3:
            keys, parts = (_texts(nodes, ref) for ref in source.inputs[1:])
            if index < min(len(keys), len(parts)):
                found[variable.name] = CheckpointEntry(keys[index], parts[index])
    return found


def _origin(nodes: Mapping[str, TFNode], ref: Ref) -> tuple[TFNode, int]:
    """The node that produces a tensor, through nodes that only pass it on."""
    for _ in range(len(nodes)):
        node = nodes.get(ref[0])
        if node is None:
            raise LoadError(f"the restore op refers to `{ref[0]}`, which does not exist")
        if node.op not in PASSED or ref[1] >= len(node.inputs):
            return node, ref[1]
        ref = node.inputs[ref[1]]
    raise LoadError("the restore op is part of a cycle")


def _texts(nodes: Mapping[str, TFNode], ref: Ref) -> list[str]:
    node, _ = _origin(nodes, ref)
    if node.op != "Const":
        return []
    return [bytes(text).decode() for text in np.ravel(decode_constant(node)).tolist()]


# -- values --------------------------------------------------------------------------------------


@contextmanager
def readable(prefix: Prefix) -> Iterator[str]:
    """A prefix for TensorFlow, which reads some characters as patterns and needs UTF-8."""
    if not re.search(r"[*?\[\]\\\udc80-\udcff]", str(prefix)):
        yield str(prefix)
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Prefix(Path(folder), "checkpoint")
        for file in prefix.files():
            place.file(split_name(file.name)[1]).symlink_to(file.resolve())
        yield str(place)


def _values(
    variables: Iterable[TFNode], entries: Mapping[str, CheckpointEntry], prefix: Prefix
) -> dict[str, Array]:
    import tensorflow as tf

    stored_bytes = sum(file.stat().st_size for file in prefix.data_files())
    with readable(prefix) as path:
        # Not tf.train.load_checkpoint, which mistakes a prefix for a directory of the same name.
        reader = tf.compat.v1.train.NewCheckpointReader(path)
        return _read_from(reader, variables, entries, stored_bytes)


def _read_from(
    reader: TFModule,
    variables: Iterable[TFNode],
    entries: Mapping[str, CheckpointEntry],
    stored_bytes: int,
) -> dict[str, Array]:
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    found: dict[str, Array] = {}
    for node in variables:
        entry = entries.get(node.name) or _by_name(node, shapes)
        if entry.key not in shapes:
            raise LoadError(f"variable `{node.name}` is not in the checkpoint (`{entry.key}`)")
        dtype = dtypes[entry.key].base_dtype
        if dtype.name != DTYPES.get(node.proto.attr["dtype"].type % 100):
            raise LoadError(f"variable `{node.name}` has another dtype in the checkpoint: {dtype}")
        if math.prod(shapes[entry.key]) * dtype.size > stored_bytes:
            raise LoadError(
                f"the checkpoint cannot be read: `{entry.key}` is larger than its data files"
            )
        value = _part(np.asarray(reader.get_tensor(entry.key)), entry.part, node.name)
        shape = node.shape()
        fits = shape is None or (
            len(shape) == value.ndim
            and all(size in (None, found) for size, found in zip(shape, value.shape, strict=True))
        )
        if not fits:
            raise LoadError(
                f"variable `{node.name}` has shape {list(value.shape)} in the checkpoint, "
                f"the graph has {list(shape or ())}"
            )
        found[node.name] = value
    return found


def _by_name(node: TFNode, keys: Mapping[str, object]) -> CheckpointEntry:
    names = (node.name, node.text("shared_name"))
    return CheckpointEntry(next((name for name in names if name in keys), node.name))


def _part(value: Array, spec: str, name: str) -> Array:
    """One of several variables that were saved as one tensor."""
    *_, parts = spec.rsplit(" ", 1)
    if not parts:
        return value
    cuts = []
    for axis, text in enumerate(parts.split(":")):
        start, _, length = text.partition(",")
        if text == "-":
            cuts.append(slice(None))
        elif start.isdigit() and length.isdigit() and axis < value.ndim:
            cuts.append(slice(int(start), int(start) + int(length)))
        else:
            raise LoadError(f"variable `{name}` is a part of a tensor that cannot be read: {spec}")
    return value[tuple(cuts)]
