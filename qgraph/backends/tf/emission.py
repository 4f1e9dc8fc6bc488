"""State of the lowering rules while a graph is emitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from qgraph.backends.tf.builder import DType, GraphDefBuilder
from qgraph.exact.bounds import Bound
from qgraph.exact.sums import FLOAT32_EXACT
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array
from qgraph.numerics import aligned
from qgraph.program import storage
from qgraph.quant.topology import QUANTIZERS, ValueExponents

FEW_ELEMENTS = 128  # a constant with fewer is stored as floats
NARROW = ("int8", "uint8", "int16")  # types of codes that are stored
MOST_EXPONENT = 100  # so that scales and values are normal float32


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
            codes = self._codes(value, array)
            self.casts[key] = (
                self.builder.const(array.astype(wanted, copy=False), value)
                if codes is None
                else self._scaled(value, codes, wanted)
            )
        return self.casts[key]

    def _codes(self, value: str, array: Array) -> Array | None:
        """The codes of a large constant, if they take less memory than its values."""
        node = self.graph.nodes[value]
        if node.op != "quantize" or array.size < FEW_ELEMENTS:
            return None
        kind = storage(spec_of(node).lo, spec_of(node).hi)
        exponent = aligned(self.exponents[value], array.shape)
        if kind not in NARROW or np.abs(exponent).max() > MOST_EXPONENT:
            return None
        return np.ldexp(array.astype(np.float64), exponent).astype(kind)

    def _scaled(self, value: str, codes: Array, dtype: str) -> str:
        """`codes * 2^-exponent`, which is exact."""
        exponent = aligned(self.exponents[value], codes.shape)
        scale = np.ldexp(np.ones(exponent.shape, dtype), -exponent)
        cast = self.builder.add(
            "Cast", f"{value}/{dtype}", [self.builder.shared(codes, f"{value}/codes")],
            SrcT=DType(codes.dtype.name), DstT=DType(dtype),
        )  # fmt: skip
        factor = self.builder.shared(scale, f"{value}/scale")
        return self.builder.add("Mul", value, [cast, factor], T=DType(dtype))
