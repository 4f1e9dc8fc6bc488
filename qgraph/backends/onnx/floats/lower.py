"""The ONNX form of each op of a float graph. A new op is an entry in one of these tables."""

from __future__ import annotations

from qgraph.backends.onnx.floats.elementwise import ELEMENTWISE, Lower
from qgraph.backends.onnx.floats.emission import FloatEmission
from qgraph.backends.onnx.floats.layers import LAYERS
from qgraph.backends.onnx.floats.moves import MOVES
from qgraph.backends.onnx.floats.opaque import opaque
from qgraph.ir.graph import Node
from qgraph.ir.ops import OPS
from qgraph.ir.reading import value_of
from qgraph.ops.lowerings import LoweringRefusal, Lowerings


def _input(e: FloatEmission, node: Node) -> None:
    e.model.input(e.inputs[node.name], e.types[node.name].dtype, e.types[node.name].shape)
    e.put(node.name, e.inputs[node.name])


def _const(e: FloatEmission, node: Node) -> None:
    e.constants[node.name] = value_of(node)


FIXED_POINT = "it is fixed-point arithmetic; quantize the model and export it as onnx-integer"
# The lowering of each op; refused ops do not occur in float models.
LOWERINGS: Lowerings[Lower] = Lowerings(
    "backends/onnx/floats/lower",
    OPS,
    {**ELEMENTWISE, **LAYERS, **MOVES, "input": _input, "const": _const, "opaque": opaque},
    {
        op: LoweringRefusal(f"a float ONNX model cannot contain `{op}`: {FIXED_POINT}")
        for op in ("quantize", "lookup", "standardize", "integer_softmax")
    },
)
