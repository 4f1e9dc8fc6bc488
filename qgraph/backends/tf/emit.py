"""A graph to a TensorFlow GraphDef.

Tensors hold values, not codes: `code * 2^-f` in float32, which is exact. A sum or product whose
bound is past float32's 2^24 is computed in float64, and the quantizer behind it brings it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qgraph.backends.tf.builder import Dims, DType, GraphDefBuilder
from qgraph.backends.tf.lower import LOWER
from qgraph.errors import UnsupportedError
from qgraph.exact.bounds import FLOAT32_EXACT, Bound, bounds
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array
from qgraph.numerics import quantized_constant
from qgraph.quant.topology import QUANTIZERS, value_exponent


@dataclass
class Emission:
    """What lowering rules work with: the builder, and each value's tensor and float width."""

    graph: Graph
    builder: GraphDefBuilder
    bounds: Mapping[str, Bound]
    tensors: dict[str, str] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    exponents: dict[str, Any] = field(default_factory=dict)

    def type_name(self, value: str) -> str:
        return self.dtypes.get(value, self.graph.types[value].dtype)

    def width(self, node: Node) -> str:
        """The float type that computes this node exactly."""
        bound = self.bounds.get(node.name)
        wide = bound is not None and bound.magnitude > FLOAT32_EXACT
        if node.op not in QUANTIZERS:
            wide = wide or any(self.type_name(v) == "float64" for v in node.inputs)
        return "float64" if wide else self.graph.types[node.name].dtype

    def tensor(self, value: str, dtype: str | None = None) -> str:
        """The tensor of a value, cast to `dtype` where it is held in another."""
        if value in self.constants:
            return self._constant(value, dtype)
        held = self.type_name(value)
        if dtype is None or held == dtype:
            return self.tensors[value]
        key = f"{value} as {dtype}"
        if key not in self.tensors:
            cast = self.builder.add(
                "Cast", f"{self.tensors[value].replace(':', '_')}/{dtype}", [self.tensors[value]],
                SrcT=DType(held), DstT=DType(dtype),
            )  # fmt: skip
            self.tensors[key] = cast
        return self.tensors[key]

    def _constant(self, value: str, dtype: str | None) -> str:
        array = self.constants[value]
        wanted = dtype or array.dtype.name
        key = f"{value} as {wanted}"
        if key not in self.tensors:
            self.tensors[key] = self.builder.const(array.astype(wanted, copy=False), value)
        return self.tensors[key]


def emit_graph_def(graph: Graph, known: Mapping[str, Bound] | None = None) -> Any:
    """The GraphDef of a graph: float, or quantized and calibrated.

    Placeholders are named as the graph's inputs, results as its public outputs. `known` are the
    graph's bounds, if the caller has them. Raises UnsupportedError naming the first op that
    TensorFlow cannot carry, ExactnessError where an accumulator is past float64.
    """
    return _emission(graph, known).builder.graph_def


def _emission(graph: Graph, known: Mapping[str, Bound] | None = None) -> Emission:
    found = bounds(graph) if known is None else known
    emission = Emission(graph, GraphDefBuilder([*graph.inputs, *graph.outputs]), found)
    for node in graph.topological():
        _emit(emission, node)
    _emit_outputs(emission)
    return emission


def _emit(emission: Emission, node: Node) -> None:
    builder = emission.builder
    emission.exponents[node.name] = value_exponent(node, emission.exponents)
    if node.op == "const":
        emission.constants[node.name] = node.attrs["value"]
    elif node.op == "input":
        kind = emission.graph.types[node.name]
        attrs: dict[str, Any] = {"dtype": DType(kind.dtype), "shape": Dims(kind.shape)}
        emission.tensors[node.name] = builder.add_exactly("Placeholder", node.name, **attrs)
    elif node.op == "quantize" and node.inputs[0] in emission.constants:
        constant = emission.constants[node.inputs[0]]
        emission.constants[node.name] = quantized_constant(constant, node.attrs["spec"])
    else:
        if node.op not in LOWER:
            raise UnsupportedError(f"TensorFlow cannot carry `{node.op}`", node=node.name)
        emission.dtypes[node.name] = emission.width(node)
        if node.op in ("cast", "opaque") or not emission.graph.types[node.name].is_float:
            emission.dtypes[node.name] = emission.graph.types[node.name].dtype
        tensor = LOWER[node.op](emission, node)
        waits_for = (emission.tensors[n] for n in node.control if n in emission.tensors)
        builder.graph_def.node[-1].input.extend(f"^{n.partition(':')[0]}" for n in waits_for)
        emission.tensors[node.name] = tensor
        for index, value in enumerate(node.values[1:], start=1):
            emission.tensors[value] = f"{tensor}:{index}"


def _emit_outputs(emission: Emission) -> None:
    graph, builder = emission.graph, emission.builder
    for public, value in graph.outputs.items():
        wanted = graph.types[value].dtype
        tensor = emission.tensor(value, wanted)
        if public != tensor:
            builder.add_exactly("Identity", public, [tensor], T=DType(wanted))


def tensor_names(graph: Graph, known: Mapping[str, Bound] | None = None) -> dict[str, str]:
    """The tensor of each value that the emitted graph computes: all but constants."""
    tensors = _emission(graph, known).tensors
    values = [v for n in graph.topological() for v in n.values]
    return {value: tensors[value] for value in values if value in tensors}
