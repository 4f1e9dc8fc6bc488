"""Values on their way into fixed point: the form each one has, and the quantizers between forms.

Values have one of four forms: `input` (an input of the graph as it comes), `float` (computed
outside the integer part), `codes` (a quantizer has put them on an 8-bit grid) and `wide` (the
exact result of integer arithmetic that no quantizer has seen yet).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.base import Scale
from qgraph.ir.types import Overflow, QuantSpec, Role
from qgraph.quant.profile import Profile
from qgraph.quant.topology import (
    CLIPS,
    end_layers,
    is_nonnegative,
)
from qgraph.rewrite.constants import leaky_product
from qgraph.rewrite.rewriter import Rewriter

OUTSIDE = ("input", "float")
WIDEST_STAGE = 32
WIDEST_NORM_STAGE = 16  # its quotient is of 64 bits
LEAST_NORM_BITS = 4  # of codes that a layer norm is made of


@dataclass(frozen=True)
class ValueForm:
    """`kind` is input, float, codes, wide or const; `value` has this form in the new graph."""

    kind: str
    value: str


class ValueForms:
    """Gives each op its inputs in the form that it needs, with one quantizer a value."""

    def __init__(self, rewriter: Rewriter, profile: Profile) -> None:
        self.rewriter = rewriter
        self.graph: Graph = rewriter.graph
        self.profile = profile
        self.bits = profile.bits
        self.forms: dict[str, ValueForm] = {}
        self.narrowed: dict[str, str] = {}
        self.normed: set[str] = set()  # what comes out of a layer norm and its activation
        self.ends = end_layers(self.graph)
        self.nonnegative = is_nonnegative(self.graph)
        leaky = ((n.name, leaky_product(self.graph, n)) for n in self.graph.topological())
        self.leaky = {name: parts for name, parts in leaky if parts is not None}
        self.leaky_products = set(self.leaky.values())

    def exact(self, value: str, width: int | None = None) -> str:
        """`value` as an output of the integer part. It is never wide."""
        form = self.forms[value]
        return self.codes(value, width) if form.kind == "wide" else form.value

    def codes(self, value: str, width: int | None = None) -> str:
        """`value` on a grid of few bits, `width` where its use asks for another than usual."""
        form = self.forms[value]
        if form.kind == "codes":
            return form.value
        if form.kind == "const":
            signed = self._has_sign(value)
            return self.constant(value, Role.CONSTANT, self.bits.activation, signed)
        layer = node_of(value)
        usual, role = self._activation_bits(layer, value in self.normed), Role.ACTIVATION
        if form.kind in OUTSIDE:
            usual, role, width = self.bits.input, Role.INPUT, None
        bits = width or usual
        key = value if bits == usual else f"{value} {bits}"
        if key not in self.narrowed:
            signed = self._has_sign(value)
            spec = self.spec(bits, signed, role, source=form.value)
            self.narrowed[key] = self.quantizer(form.value, layer, spec)
        return self.narrowed[key]

    def _activation_bits(self, layer: str, normed: bool = False) -> int:
        usual = (self.bits.norm if normed else None) or self.bits.activation
        return self.profile.override(layer).activation or usual

    def _has_sign(self, value: str) -> bool:
        """Whether the codes of `value` among activations are signed."""
        return self.profile.signed_activations or not self.nonnegative(value)

    def internal(self, value: str, most: int = WIDEST_STAGE) -> str:
        """`value` as signed internal stage, of at most `most` bits: what leaky ReLU works on."""
        form = self.forms[value]
        source = self.codes(value) if form.kind in OUTSIDE else form.value
        bits = min(self.bits.internal or self.bits.slope, most)
        key = f"{value} internal {bits}"
        if key not in self.narrowed:
            spec = self.spec(bits, True, Role.INTERNAL, source=source)
            self.narrowed[key] = self.quantizer(source, node_of(value), spec)
        return self.narrowed[key]

    def spec(
        self,
        bits: int,
        signed: bool,
        role: Role,
        *,
        per_channel: bool = False,
        source: str = "",
        table: bool = False,
    ) -> QuantSpec:
        """The spec of a quantizer on the wide value `source`, or of the entries of a table."""
        addition = bool(source) and self._is_sum(source)
        overflow = Overflow.SATURATE if role.of_constant else self.profile.overflow
        rounding = self.profile.rounding_of(role, addition, table)
        return QuantSpec(
            bits, signed, role, rounding=rounding, overflow=overflow, per_channel=per_channel
        )

    def _is_sum(self, value: str) -> bool:
        """Whether `value` is a sum or difference of two tensors, activated and clipped or not."""
        node = self.graph.producer(value)
        while acts_on_codes(node) or node.op in CLIPS:
            varying = [v for v in node.inputs if not self._is_constant(v)]
            if len(varying) != 1:
                return False
            node = self.graph.producer(varying[0])
        return node.op in ("add", "sub")

    def _is_constant(self, value: str) -> bool:
        node = self.graph.producer(value)
        return node.op == "const" or (
            node.op == "quantize" and self.graph.producer(node.inputs[0]).op == "const"
        )

    def quantizer(self, value: str, stem: str, spec: QuantSpec) -> str:
        made = self.graph.add("quantize", value, name=f"{stem}/q{spec.bits}", attrs={"spec": spec})
        self.rewriter.rule = f"quantize-{spec.role}"
        self.rewriter.log(self.graph.producer(value), f"{made}: {spec}")
        return made

    def constant(self, value: str, role: Role, bits: int, signed: bool, use: str = "") -> str:
        """A quantizer on a constant, one for each constant, role, width and `use`."""
        key = f"{value} {role} {bits} {use}"
        if key not in self.narrowed:
            per_channel = role == Role.WEIGHT and self.profile.per_channel
            spec = self.spec(bits, signed, role, per_channel=per_channel)
            self.narrowed[key] = self.quantizer(value, node_of(value), spec)
        return self.narrowed[key]

    def connect(self, node: Node, *inputs: str) -> None:
        if node.inputs != inputs:
            self.graph.replace(replace(self.graph.nodes[node.name], inputs=inputs))

    # -- ops -------------------------------------------------------------------------------


def acts_on_codes(node: Node) -> bool:
    """True for functions of one tensor that leave codes on their scale, such as ReLU."""
    definition = op_definition(node.op)
    return definition.scale is Scale.KEPT and definition.elementwise
