"""Read TensorFlow checkpoints of scripts that trained a SavedModel of a training graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qgraph.archives import reading
from qgraph.errors import LoadError
from qgraph.foreign import TFModule
from qgraph.frontends.tf.variables import Prefix, readable, split_name
from qgraph.ir.types import Array
from qgraph.train.checkpoint import Checkpoint
from qgraph.train.saved_graph.names import NETWORK, state_names

OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
HINT = "give the prefix that `tf.train.Checkpoint(model=model).write` or `Saver.save` was given"


def read_tensorflow_checkpoint(
    path: Path, network: str, variables: Mapping[str, Array]
) -> Checkpoint:
    """Read the variables that a script trained, from a TensorFlow checkpoint of a SavedModel.

    path: the prefix of the files, or one of them. network: identity of the graph. variables: those
    of the training graph before training; the checkpoint must have the same shapes and dtypes.
    Raises LoadError.
    """
    import tensorflow as tf

    stem, _ = split_name(path.name)
    prefix = Prefix(path.parent, path.name if stem is None else stem)
    with (
        reading(path, "is not a checkpoint of the training graph", HINT),
        readable(prefix) as text,
    ):
        reader = tf.compat.v1.train.NewCheckpointReader(text)
        names = state_names(variables)
        keys = _keys(reader, {*names.values(), NETWORK})
        found = reader.get_tensor(keys[NETWORK]).decode("utf-8", "replace")
        if found != network:
            raise LoadError(
                f"from another network: {found[:12]}, this one is {network[:12]}",
                hint="give the directory whose training graph was trained",
            )
        made = {name: _value(reader, keys[names[name]], name, variables[name]) for name in names}
    return Checkpoint(network, made, {}, str(path))


def _keys(reader: TFModule, names: set[str]) -> dict[str, str]:
    """Key of each variable of `SavedGraph.state`, found by the names of an object's children.

    A checkpoint of a session has the names as keys.
    """
    if not reader.has_tensor(OBJECTS):
        if all(map(reader.has_tensor, names)):
            return {name: name for name in names}
        raise LoadError("it does not have the variables of this network")
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

    nodes = TrackableObjectGraph.FromString(reader.get_tensor(OBJECTS)).nodes
    for node in nodes:
        children = {child.local_name: child.node_id for child in node.children}
        if names <= children.keys():
            return {name: nodes[children[name]].attributes[0].checkpoint_key for name in names}
    raise LoadError("no object in it has the variables of this network")


def _value(reader: TFModule, key: str, name: str, like: Array) -> Array:
    shape = tuple(reader.get_variable_to_shape_map()[key])
    dtype = reader.get_variable_to_dtype_map()[key].as_numpy_dtype
    if shape != like.shape or dtype != like.dtype:
        raise LoadError(
            f"`{name}` is {np.dtype(dtype)} of shape {list(shape)}, "
            f"the network has {like.dtype} of shape {list(like.shape)}"
        )
    return np.asarray(reader.get_tensor(key))
