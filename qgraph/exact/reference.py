"""The integer reference: the arithmetic of the hardware, in plain numpy integers.

It is simple and slow. Between the first quantizer and the last integer op there are only int64
codes and shifts. Every other form of a network is compared with it at tolerance zero.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from qgraph.errors import ExactnessError, GraphError
from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.order import inputs_first
from qgraph.ir.reading import spec_of, value_of
from qgraph.ir.types import Array, Fixed
from qgraph.numerics import dequantize, quantize
from qgraph.quant.topology import QUANTIZERS, has_integer_form

Value = Fixed | Array


class Reference:
    """A calibrated graph, ready to run on integers. Codes of constants are computed once."""

    def __init__(self, graph: Graph) -> None:
        if "calibrated" not in graph.facts:
            raise GraphError("the integer reference needs a calibrated graph", node=graph.name)
        self.graph = graph
        self.order = graph.topological()
        self.constants: dict[str, Value] = {}
        for node in self.order:
            if node.op == "const":
                self.constants[node.name] = value_of(node)
            elif node.op == "quantize":
                value = self.constants.get(node.inputs[0])
                if isinstance(value, np.ndarray):
                    self.constants[node.name] = _quantized(node, value)

    def run(
        self, feeds: Mapping[str, Value], keep: Collection[str] | None = None
    ) -> dict[str, Value]:
        """Values by name: those in `keep`, or all quantizers and outputs.

        feeds: one batch for each input, or values in the middle of the graph, which are used as
        given. Integer values are Fixed, float values are arrays, in `feeds` and in the result.
        """
        keep = self.watched() if keep is None else keep
        values: dict[str, Value] = {**self.constants, **feeds}
        order = self._needed(values, keep)
        left: dict[str, int] = {}
        for node in order:
            for value in node.inputs:
                left[value] = left.get(value, 0) + 1
        for node in order:
            if node.name not in values:
                results = self.step(node, [values[v] for v in node.inputs])
                values.update(zip(node.values, results, strict=True))
            for value in node.inputs:
                left[value] -= 1
                if not left[value] and value not in keep and value not in self.constants:
                    values.pop(value, None)
        return {name: values[name] for name in keep}

    def _needed(self, given: Collection[str], keep: Collection[str]) -> list[Node]:
        """The nodes, in order, that compute the values in `keep` from the given ones."""

        def missing(values: Iterable[str]) -> list[str]:
            return [node_of(v) for v in values if v not in given]

        nodes = self.graph.nodes
        found = set(inputs_first(missing(keep), lambda name: missing(nodes[name].inputs)))
        return [node for node in self.order if node.name in found]

    def watched(self) -> list[str]:
        """Every quantized activation and every output value."""
        quantizers = [
            n.name for n in self.order if n.op in QUANTIZERS and n.name not in self.constants
        ]
        return list(dict.fromkeys([*quantizers, *self.graph.outputs.values()]))

    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The graph's outputs by public name, as float32."""
        values = self.run(feeds, set(self.graph.outputs.values()))
        return {public: as_float(values[value]) for public, value in self.graph.outputs.items()}

    def step(self, node: Node, inputs: list[Value]) -> tuple[Value, ...]:
        """The results of one node: Fixed if all inputs are integers, arrays if any is float."""
        definition = op_definition(node.op)
        if node.op == "quantize" and not isinstance(inputs[0], Fixed):
            return (_quantized(node, inputs[0]),)
        codes = [i for i in inputs if isinstance(i, Fixed)]
        if definition.integer and has_integer_form(node) and codes and len(codes) == len(inputs):
            try:
                return (definition.integer(node.attributes, codes),)
            except GraphError as error:
                raise GraphError(error.message, node=node.name, hint=error.hint) from None
        if definition.evaluate is None:
            raise GraphError(f"`{node.op}` has no reference", node=node.name)
        result = definition.evaluate(node.attributes, [as_float(i) for i in inputs])
        return result if isinstance(result, tuple) else (result,)


def as_float(value: Value) -> Array:
    """The values of codes as float32 (exact up to 16 bits); floats do not change."""
    if isinstance(value, Fixed):
        return dequantize(value).astype(np.float32)
    return value


def _quantized(node: Node, value: Array) -> Fixed:
    try:
        return quantize(value, spec_of(node))
    except ExactnessError as error:
        raise ExactnessError(error.message, node=node.name, hint=error.hint) from None
