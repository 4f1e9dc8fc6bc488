"""How each op is written in TensorFlow. A new op is a new entry in one of these tables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.backends.tf.emission import Emission
from qgraph.backends.tf.lower.base import Lower
from qgraph.backends.tf.lower.linear import LINEAR
from qgraph.backends.tf.lower.movement import MOVEMENT
from qgraph.backends.tf.lower.pointwise import POINTWISE
from qgraph.backends.tf.lower.quantizers import QUANTIZERS
from qgraph.errors import UnsupportedError
from qgraph.frontends.opaque import TFSource
from qgraph.ir.graph import Node


def _opaque(e: Emission, node: Node) -> str:
    """The op as its source had it, on this graph's tensors, with the functions that it calls."""
    source = node.attrs["source"]
    if not isinstance(source, TFSource):
        raise UnsupportedError(f"`{node.attrs['kind']}` is not a TensorFlow op", node=node.name)
    made = e.builder.graph_def.node.add()
    made.ParseFromString(source.node_def)
    made.name = e.builder.unique(node.name)
    del made.input[:]
    made.input.extend(e.tensor(v, e.graph.types[v].dtype) for v in node.inputs)
    e.builder.add_library(source.library)
    name: str = made.name
    return name


LOWER: Mapping[str, Lower] = MappingProxyType(
    {**LINEAR, **MOVEMENT, **POINTWISE, **QUANTIZERS, "opaque": _opaque}
)
