"""Embeddings in fixed point: a table of codes, and indices that are codes on a scale of 1."""

from __future__ import annotations

from collections.abc import Callable

from qgraph.ir.graph import Node, node_of
from qgraph.ir.types import Role
from qgraph.quant.value_forms import OUTSIDE, ValueForms
from qgraph.rewrite.constants import not_constant
from qgraph.rewrite.indices import without_sign

INDEX_BITS = (8, 16, 24)  # float32 holds 24 bits exactly


def bits_for(rows: int) -> int | None:
    """Bits of the indices of so many rows; None if they are more than any target has."""
    return next((bits for bits in INDEX_BITS if rows <= 1 << bits), None)


class Embeddings(ValueForms):
    """Forms of the values of embeddings."""

    def rows(self, node: Node, refuse: Callable[[Node, str], tuple[str, str]]) -> tuple[str, str]:
        """Convert an embedding. refuse: leaves a node float, for a reason."""
        table, indices = node.inputs[0], without_sign(self.graph, node.inputs[1])
        shape = self.graph.types[table].shape
        if self.forms[table].kind != "const" or not shape or shape[0] is None:
            return refuse(node, not_constant(self.graph, "its table", table))
        if self.forms[indices].kind not in OUTSIDE:
            return refuse(node, "its indices are not computed from inputs alone")
        bits = self.index_bits(node)
        if bits is None:
            return refuse(node, f"{shape[0]:,} rows are more than 2^{INDEX_BITS[-1]}")
        self.connect(node, self._table_codes(table), self.index(indices, bits))
        return "codes", node.name

    def index_bits(self, node: Node) -> int | None:
        """Bits of the indices of an embedding; None if they are more than any target has."""
        rows = (self.graph.types[node.inputs[0]].shape or (None,))[0]
        return None if rows is None else bits_for(rows)

    def _table_codes(self, table: str) -> str:
        """Codes of a table with the bits of activations. They are trained as weights are."""
        key = f"{table} rows"
        if key not in self.narrowed:
            bits, signed = self.bits.activation, self._has_sign(table)
            spec = self.spec(bits, signed, Role.WEIGHT)
            self.narrowed[key] = self.quantizer(table, node_of(table), spec)
        return self.narrowed[key]

    def index(self, indices: str, bits: int) -> str:
        """The codes of indices that are computed from inputs alone."""
        key = f"{indices} index {bits}"
        if key not in self.narrowed:
            spec = self.spec(bits, False, Role.INDEX).with_exponent(0)
            source, stem = self.forms[indices].value, node_of(indices)
            if not self.graph.types[source].is_float:
                name = f"{stem}/index"
                source = self.graph.add("cast", source, name=name, attrs={"dtype": "float32"})
            self.narrowed[key] = self.quantizer(source, stem, spec)
        return self.narrowed[key]
