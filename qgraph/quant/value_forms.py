"""Conversion of values to fixed point: the form of each value, and quantizers between forms.

Values have one of four forms: `input` (an input of the graph, unchanged), `float` (computed
outside the integer part), `codes` (quantized to an 8-bit grid) and `wide` (the exact result of
integer arithmetic, before a quantizer).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.base import Scale
from qgraph.ir.ops.structure import QuantizerAttrs
from qgraph.ir.reading import marks_of
from qgraph.ir.states import states_of
from qgraph.ir.types import Overflow, QuantSpec, Role
from qgraph.quant.gates import gates_of
from qgraph.quant.profile import Profile
from qgraph.quant.step_states import moves_before, state_before, users_through_moves
from qgraph.quant.topology import (
    CLIPS,
    before_layers,
    before_softmaxes,
    end_layers,
    exceeds_sources,
    is_nonnegative,
    leaving_nodes,
    masks_of,
    sources_spec,
)
from qgraph.rewrite.constants import leaky_product
from qgraph.rewrite.masks import MASK_BITS, WIDER, is_mask, masked_scores
from qgraph.rewrite.rewriter import Rewriter

OUTSIDE = ("input", "float")
MAX_STAGE_BITS = 32
MAX_STATE_BITS = 16  # of cell states and arguments of gates
MAX_NORM_STAGE_BITS = 16  # a layer norm divides numbers of 64 bits
MIN_NORM_BITS = 4  # of the input codes of a layer norm


@dataclass(frozen=True)
class ValueForm:
    """`kind` is input, float, codes, wide or const; `value` has this form in the new graph."""

    kind: str
    value: str


class ValueForms:
    """Gives each op its inputs in the required form, with one quantizer per value."""

    def __init__(self, rewriter: Rewriter, profile: Profile) -> None:
        self.rewriter = rewriter
        self.graph: Graph = rewriter.graph
        self.profile = profile
        self.bits = profile.bits
        self.forms: dict[str, ValueForm] = {}
        self.narrowed: dict[str, str] = {}
        self.normed: set[str] = set()  # results of layer norms and their activations
        self.ends = end_layers(self.graph)
        inner = before_layers(self.graph)
        softmaxes = (n.name for n in self.graph.topological() if n.op == "softmax")
        self.inner_softmaxes = frozenset(softmaxes) & inner
        self.scores = before_softmaxes(self.graph, self.inner_softmaxes)
        self.masks = masks_of(self.graph, self.scores)
        self.gates = gates_of(self.graph)
        self.nonnegative = is_nonnegative(self.graph)
        leaky = ((n.name, leaky_product(self.graph, n)) for n in self.graph.topological())
        self.leaky = {name: parts for name, parts in leaky if parts is not None}
        self.leaving = leaving_nodes(self.graph)
        self.leaky_products = set(self.leaky.values())
        self.states = states_of(self.graph)
        self.ends_of_states = {n: self.graph.outputs[o] for n, o in self.states.items()}
        gated = self.gates.products | self.gates.sums
        self.wide_states = frozenset(
            name
            for name in self.states
            if any(user.name in gated for user in users_through_moves(self.graph, name))
        )
        self.state_moves = frozenset(
            move
            for name in self.wide_states
            for move in moves_before(self.graph, self.ends_of_states[name])
        )

    def exact(self, value: str, width: int | None = None) -> str:
        """`value` as an output of the integer part, which is never wide."""
        form = self.forms[value]
        return self.codes(value, width) if form.kind == "wide" else form.value

    def codes(self, value: str, width: int | None = None) -> str:
        """`value` on a grid of few bits; with `width` bits if its user needs another number."""
        form = self.forms[value]
        if form.kind == "codes":
            return form.value
        if form.kind == "const":
            signed = self._has_sign(value)
            return self.constant(value, Role.CONSTANT, self.bits.activation, signed)
        layer = node_of(value)
        usual, role = self._activation_bits(layer, value in self.normed), Role.ACTIVATION
        state = state_before(self.graph, form.value) if form.kind in OUTSIDE else None
        if state is not None:
            return self._narrowed_state(value, state, width or usual)
        if form.kind in OUTSIDE:
            usual, role, width = self.bits.input, Role.INPUT, None
        bits = width or usual
        key = value if bits == usual else f"{value} {bits}"
        if key not in self.narrowed:
            signed = self._has_sign(value)
            spec = self.spec(bits, signed, role, source=form.value)
            self.narrowed[key] = self.quantizer(form.value, layer, spec)
        return self.narrowed[key]

    def table_codes(self, value: str) -> str:
        """The codes that a table has an entry for."""
        codes = self.codes(value, self.bits.table)
        if not exceeds_sources(self.graph, codes):
            return codes
        key = f"{value} table"
        if key not in self.narrowed:
            bits = self.bits.table or self._activation_bits(node_of(value))
            spec = self.spec(bits, self._has_sign(value), Role.ACTIVATION, source=codes)
            self.narrowed[key] = self.quantizer(codes, node_of(value), spec)
        return self.narrowed[key]

    def state_bits(self, state: str) -> int:
        """Bits of a state at both of its ends: more where it takes part in sums of gates."""
        if state in self.wide_states and self.bits.internal is not None:
            return min(self.bits.internal, MAX_STATE_BITS)
        return self._activation_bits(node_of(self.ends_of_states[state]))

    def output_bits(self, public: str) -> int | None:
        """Bits of an output, of which states need more; None for those of activations."""
        states = [name for name, output in self.states.items() if output == public]
        return max(map(self.state_bits, states)) if states else self.bits.output

    def state_codes(self, value: str, state: str) -> str:
        """The codes of a state as they enter the step."""
        key = f"{value} state"
        if key not in self.narrowed:
            source = self.forms[value].value
            signed = self._has_sign(self.ends_of_states[state])
            spec = self.spec(self.state_bits(state), signed, Role.INPUT, source=source)
            self.narrowed[key] = self.quantizer(source, node_of(value), spec)
        return self.narrowed[key]

    def _narrowed_state(self, value: str, state: str, bits: int) -> str:
        """The codes of a state, with fewer bits if a user takes fewer."""
        codes = self.state_codes(value, state)
        if bits >= self.state_bits(state):
            return codes
        key = f"{value} {bits}"
        if key not in self.narrowed:
            signed = self._has_sign(self.ends_of_states[state])
            spec = self.spec(bits, signed, Role.ACTIVATION, source=codes)
            self.narrowed[key] = self.quantizer(codes, node_of(value), spec)
        return self.narrowed[key]

    def _activation_bits(self, layer: str, normed: bool = False) -> int:
        usual = (self.bits.norm if normed else None) or self.bits.activation
        return self.profile.override(layer).activation or usual

    def _has_sign(self, value: str) -> bool:
        """Whether the codes of the activation `value` are signed."""
        return self.profile.signed_activations or not self.nonnegative(value)

    def kept(self, value: str) -> str:
        """`value` with the bits of the internal stage, of a gate or a state of a cell."""
        form = self.forms[value]
        state = state_before(self.graph, form.value) if form.kind in OUTSIDE else None
        if state is not None:
            return self.state_codes(value, state)
        if self.bits.internal is None or form.kind != "wide":
            return self.codes(value)
        bits = min(self.bits.internal, MAX_STATE_BITS)
        inner = self.graph.producer(form.value)
        if inner.op == "quantize" and inner.typed(QuantizerAttrs).spec.bits == bits:
            return form.value
        return self.codes(value, bits)

    def internal(self, value: str, most: int = MAX_STAGE_BITS) -> str:
        """`value` as a signed internal stage of at most `most` bits, the input of a leaky ReLU."""
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
        """The spec of a quantizer for the wide value `source`, or of the entries of a table."""
        before = self._before_activations(source) if source else None
        addition = before is not None and before.op in ("add", "sub")
        product = before is not None and before.op == "mul" and not marks_of(before).pool
        overflow = Overflow.SATURATE if role.of_constant else self.profile.overflow
        rounding = self.profile.rounding_of(role, addition=addition, product=product, table=table)
        return QuantSpec(
            bits, signed, role, rounding=rounding, overflow=overflow, per_channel=per_channel
        )

    def _before_activations(self, value: str) -> Node | None:
        """The op whose result is `value`, before activations; None if they join two values."""
        node = self.graph.producer(value)
        while acts_on_codes(node) or node.op in CLIPS:
            varying = [v for v in node.inputs if not self._is_constant(v)]
            if len(varying) != 1:
                return None
            node = self.graph.producer(varying[0])
        return node

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
        """The quantizer of a constant, one for each constant, role, width and `use`."""
        key = f"{value} {role} {bits} {use}"
        if key not in self.narrowed:
            per_channel = role == Role.WEIGHT and self.profile.per_channel
            spec = self.spec(bits, signed, role, per_channel=per_channel)
            self.narrowed[key] = self.quantizer(value, node_of(value), spec)
        return self.narrowed[key]

    def masked(self, node: Node) -> bool:
        """Add codes that are far below all scores, where a constant takes elements out."""
        found = masked_scores(self.graph, node, self.inner_softmaxes)
        if found is None or found[2].any():
            return False
        codes = self.codes(found[0], self.bits.table)
        bits = max(MASK_BITS, sources_spec(self.graph, codes).bits + WIDER)
        mask = self.rewriter.const(found[1], f"{node.name}/mask")
        self.connect(node, codes, self.constant(mask, Role.CLIP, bits, True, node.name))
        return True

    def is_mask(self, value: str) -> bool:
        """Whether an addend of scores takes elements out of a softmax.

        On a scale with its large numbers, the scores would have few codes. One that is computed
        from inputs without a layer is taken for a mask.
        """
        constant = self.graph.constant(value)
        return node_of(value) in self.masks if constant is None else is_mask(constant)

    def is_float_arithmetic(self, node: Node) -> bool:
        """Whether a node is arithmetic on floats only, or outside of the integer part."""
        outside = marks_of(node).outside
        return outside or {self.forms[v].kind for v in node.inputs} - {"const"} == {"float"}

    def connect(self, node: Node, *inputs: str) -> None:
        if node.inputs != inputs:
            self.graph.replace(replace(self.graph.nodes[node.name], inputs=inputs))

    # -- ops -------------------------------------------------------------------------------


def acts_on_codes(node: Node) -> bool:
    """Whether a node is a function of one tensor that keeps the scale of codes, such as ReLU."""
    definition = op_definition(node.op)
    return definition.scale is Scale.KEPT and definition.elementwise
