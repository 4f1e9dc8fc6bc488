"""State of the lowering rules while a graph is emitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qgraph.backends.tf.builder import DType, GraphDefBuilder
from qgraph.exact.bounds import Bound
from qgraph.exact.sums import FLOAT32_EXACT
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array
from qgraph.quant.topology import QUANTIZERS, ValueExponents


@dataclass
class Emission:
    """State of the lowering rules: the builder, and each value's tensor and float width."""

    graph: Graph
    builder: GraphDefBuilder
    bounds: Mapping[str, Bound]
    tensors: dict[str, str] = field(default_factory=dict)
    casts: dict[tuple[str, str], str] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    exponents: ValueExponents = field(default_factory=dict)

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
        """The tensor of a value, cast to `dtype` if it has another type."""
        if value in self.constants:
            return self._constant(value, dtype)
        held = self.type_name(value)
        if dtype is None or held == dtype:
            return self.tensors[value]
        key = value, dtype
        if key not in self.casts:
            cast = self.builder.add(
                "Cast", f"{self.tensors[value].replace(':', '_')}/{dtype}", [self.tensors[value]],
                SrcT=DType(held), DstT=DType(dtype),
            )  # fmt: skip
            self.casts[key] = cast
        return self.casts[key]

    def _constant(self, value: str, dtype: str | None) -> str:
        array = self.constants[value]
        wanted = dtype or array.dtype.name
        key = value, wanted
        if key not in self.casts:
            self.casts[key] = self.builder.const(array.astype(wanted, copy=False), value)
        return self.casts[key]
