"""Insert quantizers by topology (TQT section 4.3, docs/numerics.md).

Values have one of four forms on their way: `input` (an input of the graph as it comes), `float`
(computed outside the integer part), `codes` (a quantizer has put them on an 8-bit grid) and
`wide` (the exact result of integer arithmetic that no quantizer has seen yet). Each op asks its
inputs for the form that it needs; a quantizer is made where a form has to change, once a value.
That is how the last 8-bit stage of a layer moves behind bias, eltwise add and activation.

Arithmetic on float results stays float until a layer with weights needs codes: an epsilon that
protects a logarithm would be rounded to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.base import Scale
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.ops.norm import NormAttrs
from qgraph.ir.ops.standardize import result_spec, widest_input
from qgraph.ir.reading import kind_of, marks_of, padding_value, spec_of
from qgraph.ir.types import Overflow, QuantSpec, Role
from qgraph.passes import Pass, option
from qgraph.quant.profile import Profile
from qgraph.quant.topology import (
    CLIPS,
    SIGNED_ACTIVATIONS,
    end_layers,
    is_nonnegative,
    size_advice,
    sources,
    sources_spec,
)
from qgraph.rewrite.constants import channels_of, leaky_product
from qgraph.rewrite.rewriter import Rewriter


@dataclass(frozen=True)
class InsertQuantizers(Pass):
    """Put the graph into fixed point as `profile` says; exponents are left to calibration.

    Changes the function of the graph: this is the point of it. Ops without an integer form stay
    float and are named in refusals.
    """

    profile: Profile = option("The target: a profile by name or file.")
    name: ClassVar[str] = "insert-quantizers"
    requires: ClassVar[frozenset[str]] = frozenset({"batch-norm-folded"})
    ensures: ClassVar[frozenset[str]] = frozenset({"quantized"})

    def apply(self, rewriter: Rewriter) -> None:
        _Inserter(rewriter, self.profile).run()
        if self.profile.signed_activations:
            rewriter.graph.facts.add(SIGNED_ACTIVATIONS)

    def __str__(self) -> str:
        return f"{self.name}{{profile={self.profile.name}}}"


OUTSIDE = ("input", "float")
LEAST_NORM_BITS = 4  # of codes that a layer norm is made of


@dataclass(frozen=True)
class _ValueForm:
    kind: str  # input, float, codes, wide, const
    value: str


class _Inserter:
    def __init__(self, rewriter: Rewriter, profile: Profile) -> None:
        self.rewriter = rewriter
        self.graph: Graph = rewriter.graph
        self.profile = profile
        self.bits = profile.bits
        self.forms: dict[str, _ValueForm] = {}
        self.narrowed: dict[str, str] = {}
        self.normed: set[str] = set()  # what comes out of a layer norm and its activation
        self.ends = end_layers(self.graph)
        self.nonnegative = is_nonnegative(self.graph)
        leaky = ((n.name, leaky_product(self.graph, n)) for n in self.graph.topological())
        self.leaky = {name: parts for name, parts in leaky if parts is not None}
        self.leaky_products = set(self.leaky.values())

    def run(self) -> None:
        for node in list(self.graph.topological()):
            if node.op == "const":
                self.forms[node.name] = _ValueForm("const", node.name)
                continue
            kind, value = self._handler(node)(node)
            for produced in node.values:
                self.forms[produced] = _ValueForm(
                    kind, value if produced == node.name else produced
                )
        for public, value in self.graph.outputs.items():
            self.graph.outputs[public] = self.exact(value, self.bits.output)
        self._unify_concat_signs()
        self._set_table_domains()

    def _handler(self, node: Node) -> Callable[[Node], tuple[str, str]]:
        definition = op_definition(node.op)
        if node.op in COMPUTE:
            return self._compute
        if _acts_on_codes(node):
            return self._through
        if node.op == "bias_add":
            return self._bias
        if node.op == "mul":
            return self._product
        if node.op == "concat":
            return self._concat
        if definition.same_scale:
            return self._sum
        if definition.moves:
            return self._move
        if definition.pointwise:
            return self._table
        if node.op == "layer_norm":
            return self._norm
        return self._float

    # -- forms -----------------------------------------------------------------------------

    def exact(self, value: str, width: int | None = None) -> str:
        """`value` as it leaves the integer part: whatever it is, but never wide."""
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

    def internal(self, value: str, most: int = 16) -> str:
        """`value` as signed internal stage (16 bits, or `most`): what leaky ReLU works on."""
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
        while _acts_on_codes(node) or node.op in CLIPS:
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

    def _compute(self, node: Node) -> tuple[str, str]:
        x, w = node.inputs
        if self.forms[w].kind != "const":
            return self._float(node, "its weights are not constant")
        if marks_of(node).pool:
            ones = bool(np.all(self.graph.constant(w) == 1))
            weight = self.constant(
                w, Role.CONSTANT, 1 if ones else self.bits.constant, signed=False
            )
            self.connect(node, self.codes(x), weight)
            return "wide", node.name
        if marks_of(node).batch_norm:
            weight = self.constant(w, Role.SCALE, self.bits.scale, signed=True)
        else:
            usual = self.bits.weight_ends if node.name in self.ends else self.bits.weight
            bits = self.profile.override(node.name).weight or usual
            weight = self.constant(w, Role.WEIGHT, bits, signed=True, use=node.op)
        self.connect(node, self.codes(x), weight)
        if self.bits.internal is None:
            return "wide", node.name
        spec = self.spec(self.bits.internal, True, Role.INTERNAL)
        return "wide", self.quantizer(node.name, node.name, spec)

    def _bias(self, node: Node) -> tuple[str, str]:
        x, b = node.inputs
        if self.forms[b].kind != "const":
            return self._float(node, "its bias is not constant")
        if self._is_float_arithmetic(node):
            return self._float(node, "its inputs are float")
        wide = self.forms[x].value if self.forms[x].kind == "wide" else self.codes(x)
        if self.bits.internal is not None and not sources(self.graph, wide):
            wide = self.internal(x)  # a bias of few bits does not fit the scale of a product
        self.connect(node, wide, self.constant(b, Role.BIAS, self.bits.bias, True, node.name))
        return "wide", node.name

    def _through(self, node: Node) -> tuple[str, str]:
        form = self.forms[node.inputs[0]]
        self.connect(node, form.value)
        if node.inputs[0] in self.normed:
            self.normed.add(node.name)
        return form.kind, node.name

    def _sum(self, node: Node) -> tuple[str, str]:
        if self._is_float_arithmetic(node):
            return self._float(node, "its inputs are float")
        leaky = self.leaky.get(node.name)
        if leaky is not None:
            x, product = leaky
            self.connect(node, self.internal(x), self.forms[product].value)
            return "wide", node.name
        if node.op in CLIPS and self._clip(node):
            return "wide", node.name
        if self.bits.output and self._leaves(node):
            self.graph.set_attrs(node.name, outside=True)
            return self._float(node, "it only sums what leaves the network")
        self.connect(node, *(self.codes(v) for v in node.inputs))
        return "wide", node.name

    def _leaves(self, node: Node) -> bool:
        """True for what is an output of the network, and nothing else."""
        return node.name in self.graph.outputs.values() and not self.graph.users(node.name)

    def _clip(self, node: Node) -> bool:
        """Clip a wide value to a constant on its own scale, before it is made narrow.

        The result of a product has no scale of its own yet: it takes the internal stage.
        """
        kinds = [self.forms[v].kind for v in node.inputs]
        if sorted(kinds) != ["const", "wide"]:
            return False
        value, bound = node.inputs if kinds[0] == "wide" else node.inputs[::-1]
        wide = self.forms[value].value
        if not sources(self.graph, wide):
            if self.bits.internal is None:
                return False
            wide = self.internal(value)
        clip = self.constant(bound, Role.CLIP, self.bits.internal or 16, True, node.name)
        self.connect(node, *((wide, clip) if kinds[0] == "wide" else (clip, wide)))
        return True

    def _is_float_arithmetic(self, node: Node) -> bool:
        if marks_of(node).outside:
            return True
        return {self.forms[v].kind for v in node.inputs} - {"const"} == {"float"}

    def _product(self, node: Node) -> tuple[str, str]:
        if self._is_float_arithmetic(node):
            return self._float(node, "its inputs are float")
        constants = [v for v in node.inputs if self.forms[v].kind == "const"]
        data = [v for v in node.inputs if v not in constants]
        if not constants or not data:
            self.connect(node, *(self.codes(v) for v in node.inputs))
            return "wide", node.name
        x, c = data[0], constants[0]
        if marks_of(node).pool:
            self.connect(
                node,
                self.forms[x].value,
                self.constant(c, Role.CONSTANT, self.bits.constant, signed=False),
            )
            return "wide", node.name
        if (x, node.name) in self.leaky_products:
            self.connect(
                node,
                self.internal(x),
                self.constant(c, Role.CONSTANT, self.bits.slope, signed=True),
            )
            spec = self.spec(self.bits.internal or self.bits.slope, True, Role.INTERNAL)
            return "wide", self.quantizer(node.name, node.name, spec)
        self.connect(
            node, self.codes(x), self.constant(c, Role.SCALE, self.bits.scale, signed=True)
        )
        return "wide", node.name

    def _concat(self, node: Node) -> tuple[str, str]:
        if all(self.forms[v].kind in (*OUTSIDE, "const") for v in node.inputs):
            return self._float(node, "all its inputs are float")
        self.connect(node, *(self.codes(v) for v in node.inputs))
        return "codes", node.name

    def _move(self, node: Node) -> tuple[str, str]:
        if padding_value(node):
            return self._float(node, f"its padding value {padding_value(node)} is on no grid")
        form = self.forms[node.inputs[0]]
        if form.kind in (*OUTSIDE, "const"):
            self.connect(node, form.value)
            return "input" if form.kind == "input" else "float", node.name
        self.connect(node, self.codes(node.inputs[0]))
        return "codes", node.name

    def _table(self, node: Node) -> tuple[str, str]:
        if self.forms[node.inputs[0]].kind in (*OUTSIDE, "const"):
            return self._float(node, "its input is float")
        width = self.bits.output if self._leaves(node) else None
        bits = width or self._activation_bits(node.name)
        spec = self.spec(bits, self._has_sign(node.name), Role.ACTIVATION, table=True)
        x = self.codes(node.inputs[0], self.bits.table)
        attrs = {
            **node.attrs,
            "function": node.op,
            "domain": sources_spec(self.graph, x),
            "spec": spec,
        }
        self.graph.replace(Node(node.name, "lookup", (x,), attrs, node.control))
        self.rewriter.rule = "table"
        self.rewriter.log(node, f"lookup table of {node.op}: {spec}")
        return "codes", node.name

    def _norm(self, node: Node) -> tuple[str, str]:
        """A layer norm: standardized in the internal stage's bits, then a product and a bias."""
        x, gamma, beta = node.inputs
        if self.forms[x].kind in ("float", "const"):
            return self._float(node, "its input is float")
        if {self.forms[v].kind for v in (gamma, beta)} != {"const"}:
            return self._float(node, "its scale and offset are not constant")
        channels = channels_of(self.graph, gamma) or 0
        most = widest_input(channels)
        if most < LEAST_NORM_BITS:
            return self._float(node, f"{channels} channels are too many")
        source = "" if self.forms[x].kind == "wide" else self.codes(x)
        if not source or sources_spec(self.graph, source).bits > most:
            source = self.internal(x, most)
        spec = self.spec(self.bits.internal or self.bits.slope, True, Role.INTERNAL)
        spec = result_spec(spec, channels)
        domain = sources_spec(self.graph, source)
        attrs = {"epsilon": node.typed(NormAttrs).epsilon, "domain": domain, "spec": spec}
        normal = self.graph.add("standardize", source, name=f"{node.name}/normal", attrs=attrs)
        scaled = self.graph.add("mul", normal, gamma, name=f"{node.name}/scale")
        self.rewriter.rule = "standardize"
        self.rewriter.log(node, f"{normal}: {spec}; then a product and a bias")
        self.forms[normal] = _ValueForm("codes", normal)
        self.forms[scaled] = _ValueForm(*self._product(self.graph.nodes[scaled]))
        shifted = Node(node.name, "bias_add", (scaled, beta), control=node.control)
        self.graph.replace(shifted)
        self.normed.add(node.name)
        return self._bias(shifted)

    def _float(self, node: Node, reason: str = "") -> tuple[str, str]:
        self.connect(node, *(self.exact(v, self.bits.output) for v in node.inputs))
        if node.op == "input":
            return "input", node.name
        self.rewriter.rule = "integer-form"
        kind = (
            f"`{kind_of(node)}` is not understood"
            if node.op == "opaque"
            else f"{node.op} is a float op"
        )
        advice = size_advice(self.graph, node)
        self.rewriter.refuse(
            node, "; ".join(filter(None, (f"stays float: {reason or kind}", advice)))
        )
        return "float", node.name

    # -- afterwards ------------------------------------------------------------------------

    def _unify_concat_signs(self) -> None:
        """A joined tensor has one 8-bit type: where one member is signed, all are."""
        concats = [
            n
            for n in self.graph.topological()
            if n.op == "concat" and self.forms[n.name].kind == "codes"
        ]
        changed = True
        while changed:
            changed = False
            for node in concats:
                members = sources(self.graph, node.name)
                signs = {spec_of(self.graph.nodes[m]).signed for m in members}
                for member in members if len(signs) > 1 else ():
                    spec = spec_of(self.graph.nodes[member])
                    if not spec.signed:
                        self.graph.set_attrs(member, spec=replace(spec, signed=True))
                        self.rewriter.rule = "concat-sign"
                        self.rewriter.log(
                            self.graph.nodes[member], f"signed, as other members of {node.name} are"
                        )
                        changed = True

    def _set_table_domains(self) -> None:
        for node in list(self.graph.nodes.values()):
            if node.op in ("lookup", "standardize"):
                self.graph.set_attrs(node.name, domain=sources_spec(self.graph, node.inputs[0]))


def _acts_on_codes(node: Node) -> bool:
    """True for functions of one tensor that leave codes on their scale, such as ReLU."""
    definition = op_definition(node.op)
    return definition.scale is Scale.KEPT and definition.elementwise
