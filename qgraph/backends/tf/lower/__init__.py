"""The TensorFlow form of each op. A new op is a new entry in one of these tables."""

from __future__ import annotations

from qgraph.backends.tf.emission import Emission
from qgraph.backends.tf.lower.base import Lower
from qgraph.backends.tf.lower.linear import LINEAR
from qgraph.backends.tf.lower.movement import MOVEMENT
from qgraph.backends.tf.lower.norm import NORM
from qgraph.backends.tf.lower.pointwise import POINTWISE
from qgraph.backends.tf.lower.quantizers import QUANTIZERS
from qgraph.errors import UnsupportedError
from qgraph.frontends.tf.opaque import TFSource, foreign_ops
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import OPS
from qgraph.ir.ops.structure import OpaqueAttrs
from qgraph.ir.reading import kind_of
from qgraph.ops.lowerings import Lowerings


def _opaque(e: Emission, node: Node) -> str:
    """Copy an opaque op with this graph's tensors, and the functions that it calls."""
    source = node.typed(OpaqueAttrs).source
    if not isinstance(source, TFSource):
        raise _foreign(node)
    made = e.builder.graph_def.node.add()
    made.ParseFromString(source.node_def)
    made.name = e.builder.unique(node.name)
    del made.input[:]
    made.input.extend(e.tensor(v, e.graph.types[v].dtype) for v in node.inputs)
    e.builder.add_library(source.library)
    name: str = made.name
    return name


def refusal_of(graph: Graph) -> UnsupportedError | None:
    """The reason why TensorFlow cannot carry a graph: the first op that it does not have."""
    return next(map(_foreign, foreign_ops(graph)), None)


def _foreign(node: Node) -> UnsupportedError:
    return UnsupportedError(
        f"`{kind_of(node)}` is not supported and not a TensorFlow op, so it cannot be written",
        node=node.name,
        hint="exclude it: --inputs and --outputs name the part to read; if it depends on unknown"
        " sizes, give --input-shape",
    )


# `emit` writes inputs and constants, and `written_out` replaces these functions by steps.
WRITTEN_ELSEWHERE = frozenset({"input", "const", "composed", "gelu"})
LOWERINGS: Lowerings[Lower] = Lowerings(
    "backends/tf/lower",
    OPS.keys() - WRITTEN_ELSEWHERE,
    {**LINEAR, **MOVEMENT, **POINTWISE, **QUANTIZERS, **NORM, "opaque": _opaque},
)
