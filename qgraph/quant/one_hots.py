"""One-hot vectors in fixed point: rows of a table that is not trained."""

from __future__ import annotations

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops import op_definition
from qgraph.ir.reading import padding_value
from qgraph.ir.types import Role
from qgraph.quant.bit_masks import BitMasks
from qgraph.quant.embeddings import bits_for
from qgraph.quant.topology import sources_spec
from qgraph.quant.value_forms import OUTSIDE
from qgraph.rewrite.indices import without_sign
from qgraph.rewrite.one_hots import one_hot_of


class OneHots(BitMasks):
    """Forms of one-hot vectors of indices that are inputs."""

    def one_hot(self, node: Node) -> tuple[str, str] | None:
        """Rows of a table for the one-hot vectors that a node computes; None for other nodes."""
        found = one_hot_of(self.graph, node)
        indices = None if found is None else self._codes_of(found.indices, len(found.table))
        if found is None or indices is None:
            return None
        signed = self.profile.signed_activations or bool((found.table < 0).any())
        spec = self.spec(self.bits.activation, signed, Role.CONSTANT)
        table = self.rewriter.const(found.table, f"{node.name}/table")
        codes = self.quantizer(table, f"{node.name}/table", spec)
        add, attrs = self.graph.add, {"axes": (found.axis,)}
        rows = add(
            "embedding",
            codes,
            self._within(node, indices, len(found.table)),
            name=f"{node.name}/rows",
        )
        last = len(self.graph.types[rows].shape or ()) - 2
        made = Node(node.name, "squeeze", (rows,), attrs, node.control)
        if found.axis < last:
            vectors = add("squeeze", rows, name=f"{node.name}/vectors", attrs=attrs)
            perm = (*range(found.axis), last, *range(found.axis, last))
            made = Node(node.name, "transpose", (vectors,), {"perm": perm}, node.control)
        self.graph.replace(made)
        self.rewriter.rule = "one-hot"
        self.rewriter.log(node, f"rows of a table: {spec}")
        return "codes", node.name

    def _within(self, node: Node, indices: str, rows: int) -> str:
        """Indices, at most that of the last row."""
        last = self.rewriter.const(np.float32(rows - 1), f"{node.name}/last")
        spec = sources_spec(self.graph, indices)
        limit = self.quantizer(last, f"{node.name}/last", spec)
        return self.graph.add("minimum", indices, limit, name=f"{node.name}/index")

    def _codes_of(self, value: str, rows: int) -> str | None:
        """The codes of indices, before they are moved; None if they are not inputs."""
        node = self.graph.producer(without_sign(self.graph, value))
        moves = op_definition(node.op).moves and not padding_value(node)
        whole = node.op == "cast" and not self.graph.types[node.inputs[0]].is_float
        if len(node.inputs) == 1 and (moves or whole):
            key = f"{node.name} codes {rows}"
            if key not in self.narrowed:
                codes = self._codes_of(node.inputs[0], rows)
                if codes is None or whole:
                    return codes
                name = f"{node.name}/codes"
                self.narrowed[key] = self.graph.add(node.op, codes, name=name, attrs=node.attrs)
            return self.narrowed[key]
        bits, is_float = bits_for(rows), self.graph.types[node.name].is_float
        if bits is None or is_float or self.forms[node.name].kind not in OUTSIDE:
            return None
        return self.index(node.name, bits)
