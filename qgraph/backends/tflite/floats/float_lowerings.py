"""The operator of TFLite for each float op of a graph, or the reason why there is none."""

from __future__ import annotations

from qgraph.backends.tflite.floats.elementwise_operators import ELEMENTWISE
from qgraph.backends.tflite.floats.float_moves import MOVES
from qgraph.backends.tflite.floats.float_writer import FloatLower, FloatWriter
from qgraph.backends.tflite.floats.reductions_and_layers import REDUCTIONS_AND_LAYERS
from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Node
from qgraph.ir.ops import OPS
from qgraph.ir.reading import kind_of
from qgraph.ops.lowerings import LoweringRefusal, Lowerings

LOWERED = {**ELEMENTWISE, **REDUCTIONS_AND_LAYERS, **MOVES}


def _opaque(w: FloatWriter, node: Node) -> int:
    raise UnsupportedError(f"has no operator for `{kind_of(node)}`", node=node.name)


FLOAT_LOWERINGS: Lowerings[FloatLower] = Lowerings(
    "backends/tflite/floats",
    OPS,
    {**LOWERED, "opaque": _opaque},
    {
        op: LoweringRefusal(f"has no operator for a float `{op}`")
        for op in OPS
        if op not in LOWERED and op != "opaque"
    },
)


def write_float(writer: FloatWriter, node: Node) -> None:
    """Write a node whose inputs were written. Raises UnsupportedError if TFLite lacks it."""
    writer.put(node.name, FLOAT_LOWERINGS.of(node.op, node.name)(writer, node))
