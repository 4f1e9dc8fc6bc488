"""A GraphDef as a SavedModel with one signature."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qgraph.backends.tf.builder import Dims, set_shape, type_number
from qgraph.backends.tf.emit import tf_io_names
from qgraph.backends.tf.messages import new_message
from qgraph.foreign import Proto
from qgraph.ir.graph import Graph

FILE = "saved_model.pb"
SCHEMA, TAG, METHOD = 1, "serve", "tensorflow/serving/predict"


def write_saved_model(graph_def: Proto, graph: Graph, path: Path) -> None:
    """Write `graph_def` as `serving_default`; the signature has the user's names."""
    model = new_message("SavedModel")
    model.saved_model_schema_version = SCHEMA
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append(TAG)
    meta.graph_def.CopyFrom(graph_def)
    signature, io_names = meta.signature_def["serving_default"], tf_io_names(graph)
    signature.method_name = METHOD
    _describe(signature.inputs, io_names.inputs, graph, {name: name for name in graph.inputs})
    _describe(signature.outputs, io_names.outputs, graph, graph.outputs)
    path.mkdir()
    (path / FILE).write_bytes(model.SerializeToString(deterministic=True))


def _describe(
    described: Proto, tensors: Mapping[str, str], graph: Graph, values: Mapping[str, str]
) -> None:
    """Names, types and shapes of one side of a signature."""
    for public, tensor in tensors.items():
        kind, found = graph.types[values[public]], described[public]
        found.name, found.dtype = f"{tensor}:0", type_number(kind.dtype)
        set_shape(found.tensor_shape, Dims(kind.shape))
