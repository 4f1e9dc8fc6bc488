"""Means over the elements that a mask keeps, in fixed point: their number is a whole code."""

from __future__ import annotations

from qgraph.ir.graph import Node, node_of
from qgraph.ir.types import QuantSpec, Role
from qgraph.quant.embeddings import bits_for
from qgraph.quant.one_hots import OneHots
from qgraph.quant.step_states import users_through_moves
from qgraph.quant.topology import sources_spec
from qgraph.rewrite.counts import is_inverse_of_count

INVERSE_BITS = 16  # of 1 / count


class MaskedMeans(OneHots):
    """Forms of counts of masks and of their inverses."""

    def chosen(self, node: Node) -> tuple[str, str] | None:
        """Convert a select, or a cast of a condition, if it has an integer form."""
        found = self.choice(node) or self.one_hot(node) or self.masked_choice(node)
        return found or self.counted(node)

    def counted(self, node: Node) -> tuple[str, str] | None:
        """The codes of a mask as numbers, where a product counts them, or where it depends on a
        layer and products take it; None for other casts.
        """
        condition = node.inputs[0]
        users = users_through_moves(self.graph, node.name)
        if node.op != "cast" or self.graph.types[condition].dtype != "bool" or not users:
            return None
        depends = node_of(condition) in self.of_layers
        if depends and not self.has_codes(condition):
            return None
        if any(user.op != ("mul" if depends else "batch_matmul") for user in users):
            return None
        self.whole.append(node)
        return "codes", self.mask(condition)

    def count(self, node: Node) -> tuple[str, str] | None:
        """The number of ones of a mask, a product with a row of ones; None for other products."""
        row, mask = (self.forms[value] for value in node.inputs)
        ones = self.graph.constant(node.inputs[0])
        if node.op != "batch_matmul" or ones is None or mask.kind != "codes" or (ones != 1).any():
            return None
        found = sources_spec(self.graph, mask.value)
        bits = bits_for(ones.shape[-1] + 1)
        if (found.role, found.bits) != (Role.INDEX, 1) or bits is None:
            return None
        unit = self.spec(1, False, Role.INDEX).with_exponent(0)
        self.connect(node, self.quantizer(row.value, node.name, unit), mask.value)
        spec = self.spec(bits, False, Role.INDEX).with_exponent(0)
        return "codes", self.quantizer(node.name, node.name, spec)

    def spec_of_inverse(self, node: Node) -> QuantSpec | None:
        """The spec of a table of 1 / count, which is at most 1; None for other tables."""
        if not is_inverse_of_count(node):
            return None
        spec = self.spec(INVERSE_BITS, True, Role.ACTIVATION, table=True)
        return spec.with_exponent(INVERSE_BITS - 1)
