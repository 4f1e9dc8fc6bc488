"""How each op of a float graph is written in ONNX. A new op is an entry in one of these tables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.backends.onnx.floats.elementwise import ELEMENTWISE, Lower
from qgraph.backends.onnx.floats.emission import FloatEmission
from qgraph.backends.onnx.floats.layers import LAYERS
from qgraph.backends.onnx.floats.moves import MOVES
from qgraph.backends.onnx.floats.opaque import opaque
from qgraph.ir.graph import Node


def _input(e: FloatEmission, node: Node) -> None:
    e.model.input(e.inputs[node.name], e.types[node.name].dtype, e.types[node.name].shape)
    e.put(node.name, e.inputs[node.name])


def _const(e: FloatEmission, node: Node) -> None:
    e.constants[node.name] = node.attrs["value"]


LOWER: Mapping[str, Lower] = MappingProxyType(
    {**ELEMENTWISE, **LAYERS, **MOVES, "input": _input, "const": _const, "opaque": opaque}
)
FIXED_POINT = "it is fixed-point arithmetic; quantize the model and export it as onnx-integer"
# Ops that a float model does not hold, and why.
REFUSED: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("quantize", "lookup", "standardize"), FIXED_POINT)
)
