"""Masks in fixed point: codes of one bit, which choose between codes of one scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from qgraph.ir.graph import Node, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.reading import padding_value
from qgraph.ir.types import Overflow, Role
from qgraph.quant.layer_conditions import JOINED, NEGATED, LayerConditions
from qgraph.quant.profile import Profile
from qgraph.quant.topology import sources_spec
from qgraph.quant.value_forms import OUTSIDE
from qgraph.rewrite.indices import without_sign
from qgraph.rewrite.masks import FAR, MASK_BITS, WIDER, leaves_no_share, only_for
from qgraph.rewrite.rewriter import Rewriter

OF_ZERO = ("not_equal", "greater")  # comparisons of an index with 0 that are true for all others


class BitMasks(LayerConditions):
    """Forms of masks, and of selects by a mask."""

    def __init__(self, rewriter: Rewriter, profile: Profile) -> None:
        super().__init__(rewriter, profile)
        self.whole: list[Node] = []  # that may turn out to be unused
        rows = [n for n in self.graph.nodes.values() if n.op == "embedding"]
        self.index_widths = {
            without_sign(self.graph, node.inputs[1]): bits
            for node in rows
            if (bits := self.index_bits(node)) is not None
        }

    def whole_numbers(self, node: Node) -> tuple[str, str]:
        """Arithmetic on integers and conditions, which is not needed where masks are codes."""
        self.conditions[node.name] = node
        self.connect(node, *(self.exact(v, self.bits.output) for v in node.inputs))
        self.whole.append(node)
        return "float", node.name

    def remove_unused(self, refuse: Callable[[Node], tuple[str, str]]) -> None:
        """Remove conditions that became codes of masks; other ones stay float."""
        for node in reversed(self.whole):
            self.rewriter.prune(node.name)
            if node.name in self.graph.nodes:
                refuse(node)

    def masked_choice(self, node: Node) -> tuple[str, str] | None:
        """A `select` by a mask between codes, which keeps them; None if it has to stay float.

        It becomes mask * new + (1 - mask) * old, on one scale.
        """
        condition, *values = node.inputs
        if not values or {self.forms[value].kind for value in values} <= {*OUTSIDE, "const"}:
            return None
        if not self.has_codes(condition):
            return None
        mask = self.mask(condition)
        if node.name in self.scores and any(map(self.is_mask, values)):
            return self._masked_scores(node, mask)
        take = self.kept if node.name in self.gates.choices else self.codes
        zeros = self.graph.constant(values[1])
        or_zero = zeros is not None and not zeros.any()
        new, *others = self.on_one_scale([take(v) for v in values[: 1 if or_zero else 2]])
        specs = [sources_spec(self.graph, value) for value in (new, *others)]
        signed = any(spec.signed for spec in specs)
        bits = max(spec.bits + (signed and not spec.signed) for spec in specs)
        chosen = self._chosen(node, mask, new, *others)
        spec = self.spec(bits, signed, Role.ACTIVATION, source=chosen)
        self.graph.replace(Node(node.name, "quantize", (chosen,), {"spec": spec}, node.control))
        self.rewriter.rule = "choice"
        self.rewriter.log(node, f"codes of one scale, chosen by a mask: {spec}")
        self.rewriter.prune(node_of(values[1]))
        return "codes" if bits <= self.bits.activation else "wide", node.name

    def _masked_scores(self, node: Node, mask: str) -> tuple[str, str] | None:
        """Codes far below all scores where a mask takes elements out of a softmax; None for others.

        They are sums of both numbers, each times the mask or its opposite. Products keep the scale.
        """
        far = [leaves_no_share(self.graph.constant(value)) for value in node.inputs[1:]]
        if sum(far) != 1 or not only_for(self.graph, node.name, self.inner_softmaxes):
            return None
        scores = self.codes(node.inputs[1 + far.index(False)], self.bits.table)
        wide = max(MASK_BITS, sources_spec(self.graph, scores).bits + WIDER)
        number = self.rewriter.const(np.float32(FAR), f"{node.name}/far")
        below = self.constant(number, Role.CLIP, wide, True, node.name)
        add, attrs = self.graph.add, {"choice": True}
        yes, no = (scores, below) if far[1] else (below, scores)
        parts = [
            add("mul", value, mask, name=f"{node.name}/part", attrs=attrs) for value in (yes, no)
        ]
        rest = add("sub", no, parts[1], name=f"{node.name}/rest")
        self.graph.replace(Node(node.name, "add", (parts[0], rest), control=node.control))
        self.rewriter.rule = "mask"
        self.rewriter.log(node, "scores, or a code far below all of them")
        return "codes", node.name

    def float_condition(self, node: Node) -> str:
        """The reason why a select has no integer form; empty if it is not its condition."""
        known = node.op != "select" or self.has_codes(node.inputs[0])
        return "" if known else "its condition is computed in float from a layer"

    def _chosen(self, node: Node, mask: str, new: str, old: str = "") -> str:
        """mask * new, plus (1 - mask) * old if it is given.

        Neither product needs more bits than its factor, unlike new - old.
        """
        add, attrs = self.graph.add, {"choice": True}
        part = add("mul", new, mask, name=f"{node.name}/part", attrs=attrs)
        if not old:
            return part
        rest = add("mul", old, self._opposite(mask), name=f"{node.name}/rest", attrs=attrs)
        return add("add", part, rest, name=f"{node.name}/chosen", attrs=attrs)

    def _opposite(self, mask: str) -> str:
        """1 - mask."""
        key = f"{mask} opposite"
        if key not in self.narrowed:
            spec, name = self.spec(1, False, Role.INDEX).with_exponent(0), node_of(mask)
            number = self.rewriter.const(np.float32(1), f"{name}/one")
            one = self.quantizer(number, f"{name}/one", spec)
            rest = self.graph.add("sub", one, mask, name=f"{name}/opposite")
            self.narrowed[key] = self.quantizer(rest, rest, spec)  # its bound is 0..1 again
        return self.narrowed[key]

    def mask(self, value: str) -> str:
        """The codes of a mask: 0 or 1."""
        key = f"{value} mask"
        if key not in self.narrowed:
            name = node_of(value)
            self.narrowed[key] = self._mask(self.conditions.get(name, self.graph.nodes[name]))
        return self.narrowed[key]

    def _mask(self, node: Node) -> str:
        name = f"{node.name}/mask"
        if op_definition(node.op).moves and len(node.inputs) == 1 and not padding_value(node):
            return self.graph.add(node.op, self.mask(node.inputs[0]), name=name, attrs=node.attrs)
        if node.op in JOINED:
            return self.graph.add(JOINED[node.op], *map(self.mask, node.inputs), name=name)
        spec = replace(self.spec(1, False, Role.INDEX).with_exponent(0), overflow=Overflow.SATURATE)
        if node.name in self.of_layers:
            if node.op == NEGATED:
                return self._opposite(self.mask(node.inputs[0]))
            return self.comparison(node, spec)
        known = self.graph.constant(node.name)
        if known is not None:
            held = self.rewriter.const(known.astype(np.float32), name)
            return self.quantizer(held, node.name, spec)
        index = self._compared_index(node)
        if index is not None:  # all codes above 0 saturate to 1
            return self.quantizer(index, node.name, spec)
        number = self.graph.add("cast", node.name, name=name, attrs={"dtype": "float32"})
        return self.quantizer(number, node.name, spec)

    def _compared_index(self, node: Node) -> str | None:
        """The codes of an index of which a node tests whether it is not 0."""
        if node.op not in OF_ZERO:
            return None
        indices, zero = node.inputs[0], self.graph.constant(node.inputs[1])
        same = self.graph.types[indices].shape == self.graph.types[node.name].shape
        if zero is None or zero.any() or not same:
            return None
        bits = self.index_widths.get(indices)
        return None if bits is None else self.index(indices, bits)
