"""Sources of opaque ops, stored as arrays of bytes next to a graph's text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.frontends.onnx.opaque import OnnxSource
from qgraph.frontends.tf.opaque import TFSource
from qgraph.ir.graph import Graph
from qgraph.ir.ops.structure import OpaqueAttrs, Source
from qgraph.ir.types import Array
from qgraph.names import from_entry_name

KINDS: Mapping[str, type[TFSource] | type[OnnxSource]] = MappingProxyType(
    {"tensorflow-op": TFSource, "onnx-op": OnnxSource}
)


def source_arrays(graph: Graph) -> dict[str, Array]:
    """`tensorflow-op/<name>` or `onnx-op/<name>` for every opaque op."""
    return {
        f"{kind}/{node.name}": np.frombuffer(attrs.source.to_bytes(), np.uint8)
        for node in graph.topological()
        for kind, source in KINDS.items()
        if isinstance(attrs := node.attributes, OpaqueAttrs) and isinstance(attrs.source, source)
    }


def sources_of(arrays: Mapping[str, Array]) -> dict[str, Source]:
    """Read arrays of `source_arrays` as sources by node. Raises LoadError."""
    found: dict[str, Source] = {}
    for key, array in arrays.items():
        kind, _, name = key.partition("/")
        if kind in KINDS:
            node = from_entry_name(name)
            found[node] = KINDS[kind].from_bytes(array.tobytes(), node)
    return found
