"""Recognise functions of codes that a file writes as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, QuantSpec
from qgraph.passes import RewritePass
from qgraph.rewrite.rewriter import Rewriter, Rule

MOST_BITS = 16  # of codes whose functions become tables


@dataclass(frozen=True)
class RecognizeTabulated(RewritePass):
    """Entries of a constant table by the codes of a quantizer become `tabulated`, a function of the
    numbers that the codes stand for.

    The index is computed from the codes in any elementwise arithmetic with numbers, such as a cast
    and a sum. Codes whose index is outside of the table do not occur: programs that run the
    file end with an error there.
    """

    name: ClassVar[str] = "recognize-tabulated"

    def rules(self) -> tuple[Rule, ...]:
        return (Rule("table", ("embedding",), _table),)


def _table(rewriter: Rewriter, node: Node) -> bool:
    graph, (rows, index) = rewriter.graph, node.inputs
    table, found = graph.constant(rows), _steps_to(graph, index)
    if table is None or table.ndim != 1 or found is None:
        return False
    source, spec, steps = found
    kind = graph.types[source]
    if graph.types[node.name] != kind or not isinstance(spec.exponent, int):
        return False
    codes = np.arange(spec.lo, spec.hi + 1)
    values = {source: np.ldexp(codes, -spec.exponent).astype(kind.dtype)}
    for step in steps:
        values[step.name] = _result(graph, step, values)
    places = values[index]
    known = np.flatnonzero((places >= 0) & (places < table.size))
    if not known.size or not np.isfinite(table).all() or (np.diff(known) != 1).any():
        return rewriter.refuse(node, "stays float: its table has no entries for some codes")
    attrs = {
        "log2_steps": spec.exponent,
        "first": int(codes[known[0]]),
        "values": tuple(float(v) for v in table[places[known]]),
    }
    return rewriter.put(Node(node.name, "tabulated", (source,), attrs, node.control))


def _steps_to(graph: Graph, value: str) -> tuple[str, QuantSpec, list[Node]] | None:
    """The codes that alone determine a value, element by element: their value and format, and the
    ops between.
    """
    steps: list[Node] = []
    while True:
        node = graph.producer(value)
        spec = _format_of(graph, node)
        if spec is not None:
            return value, spec, steps[::-1]
        varying = [v for v in node.inputs if graph.constant(v) is None]
        numbers = all(_is_number(graph, v) for v in node.inputs if v not in varying)
        if not op_definition(node.op).elementwise or len(varying) != 1 or not numbers:
            return None
        steps.append(node)
        (value,) = varying


def _format_of(graph: Graph, node: Node) -> QuantSpec | None:
    """The format of codes of a quantizer, perhaps moved; None for other values."""
    while op_definition(node.op).moves and len(node.inputs) == 1 and node.op != "pad":
        node = graph.producer(node.inputs[0])
    small = node.op == "quantize" and spec_of(node).bits <= MOST_BITS
    return spec_of(node) if small else None


def _is_number(graph: Graph, value: str) -> bool:
    array = graph.constant(value)
    return array is not None and array.size == 1


def _result(graph: Graph, step: Node, values: dict[str, Array]) -> Array:
    """The result of an op for all codes."""
    constants = {v: graph.constant(v) for v in step.inputs}
    inputs = [values[v] if c is None else c.reshape(()) for v, c in constants.items()]
    evaluate = op_definition(step.op).evaluate
    assert evaluate is not None
    result: Array = evaluate(step.attributes, inputs)
    return result
