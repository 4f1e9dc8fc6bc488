"""Insert quantizers by topology (TQT section 4.3, docs/numerics.md).

Each op requests its inputs in the form that it needs (`qgraph.quant.value_forms`). If a form has to
change, a quantizer is inserted, once for each value. Therefore the last 8-bit stage of a layer
comes after bias, eltwise add and activation.

Arithmetic on float results stays float until a layer with weights needs codes: an epsilon that
protects a logarithm would be rounded to 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.ops.integer_softmax import softmax_spec
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.ops.norm import NormAttrs
from qgraph.ir.ops.standardize import result_spec, widest_input
from qgraph.ir.reading import kind_of, marks_of, padding_value, spec_of
from qgraph.ir.types import Role
from qgraph.passes import Pass, option
from qgraph.quant.kept_scales import BIAS_BITS
from qgraph.quant.masked_means import MaskedMeans
from qgraph.quant.profile import Profile
from qgraph.quant.step_states import state_before, unite_formats
from qgraph.quant.topology import CLIPS, SIGNED_ACTIVATIONS, size_advice, sources, sources_spec
from qgraph.quant.value_forms import (
    MAX_NORM_STAGE_BITS,
    MIN_NORM_BITS,
    OUTSIDE,
    ValueForm,
    acts_on_codes,
)
from qgraph.rewrite.constants import channels_of, not_constant
from qgraph.rewrite.masks import leaves_no_share
from qgraph.rewrite.rewriter import Rewriter

MASKS = "it masks a softmax, with numbers far below the others"


@dataclass(frozen=True)
class InsertQuantizers(Pass):
    """Convert the graph to fixed point by `profile`; calibration sets the exponents.

    This pass changes the function of the graph. Ops without an integer form stay
    float and are named in refusals.
    """

    profile: Profile = option("The target: a profile by name or file.")
    name: ClassVar[str] = "insert-quantizers"
    requires: ClassVar[frozenset[str]] = frozenset({"batch-norm-lowered"})
    ensures: ClassVar[frozenset[str]] = frozenset({"quantized"})

    def apply(self, rewriter: Rewriter) -> None:
        _Inserter(rewriter, self.profile).run()
        if self.profile.signed_activations:
            rewriter.graph.facts.add(SIGNED_ACTIVATIONS)

    def __str__(self) -> str:
        return f"{self.name}{{profile={self.profile.name}}}"


class _Inserter(MaskedMeans):
    """Converts the ops of a graph to fixed point, one after the other."""

    def run(self) -> None:
        for node in list(self.graph.topological()):
            if node.op == "const":
                self.forms[node.name] = ValueForm("const", node.name)
                continue
            kind, value = self._handler(node)(node)
            for produced in node.values:
                self.forms[produced] = ValueForm(kind, value if produced == node.name else produced)
        for public, value in self.graph.outputs.items():
            self.graph.outputs[public] = self.exact(value, self.output_bits(public))
        self.remove_unused(partial(self._float, reason="it computes no floats"))
        self.note_additions()
        self._unify_concat_signs()
        unite_formats(self.graph)
        self._set_table_domains()

    def _handler(self, node: Node) -> Callable[[Node], tuple[str, str]]:
        definition = op_definition(node.op)
        if node.name in self.given:
            return self.keep_quantizer
        if node.name in self.masks and node.op != "input":
            return partial(self._float, reason="it computes a mask of a softmax")
        if node.op != "input" and not self.graph.types[node.name].is_float:
            return self.whole_numbers
        if node.op in COMPUTE:
            return self._compute
        if acts_on_codes(node):
            return self._through
        if node.op == "bias_add":
            return self._bias
        if node.op in ("mul", "batch_matmul"):
            return self._product
        if node.op == "embedding":
            return partial(self.rows, refuse=self._float)
        if node.op == "concat":
            return self._concat
        if node.op in ("select", "cast"):
            return lambda n: self.chosen(n) or self._float(n, self.float_condition(n))
        if definition.same_scale:
            return self._sum
        if definition.moves:
            return self._move
        if definition.pointwise:
            return self._table
        if node.op == "layer_norm":
            return self._norm
        if node.name in self.inner_softmaxes:
            return self._softmax
        return self._float

    # -- forms -----------------------------------------------------------------------------

    def _compute(self, node: Node) -> tuple[str, str]:
        x, w = node.inputs
        if self.forms[w].kind != "const":
            if node.op == "matmul":  # of two activations
                self.graph.replace(Node(node.name, "batch_matmul", node.inputs, {}, node.control))
                return self._product(self.graph.nodes[node.name])
            return self._float(node, not_constant(self.graph, "its weights", w))
        if marks_of(node).pool:
            ones = bool(np.all(self.graph.constant(w) == 1))
            width = 1 if ones else self.bits.constant
            self.connect(node, self.codes(x), self.factor(node, w, Role.CONSTANT, width, False))
            return "wide", node.name
        if marks_of(node).batch_norm:
            weight = self.constant(w, Role.SCALE, self.bits.scale, signed=True)
        else:
            usual = self.bits.weight_ends if node.name in self.ends else self.bits.weight
            bits = self.profile.override(node.name).weight or usual
            weight = self.factor(node, w, Role.WEIGHT, bits, True, use=node.op)
        self.connect(node, self.codes(x), weight)
        if self.bits.internal is None or node.name in self.settled:
            return "wide", node.name
        spec = self.spec(self.bits.internal, True, Role.INTERNAL)
        return "wide", self.quantizer(node.name, node.name, spec)

    def _bias(self, node: Node) -> tuple[str, str]:
        x, b = node.inputs
        if self.forms[b].kind != "const":
            return self._float(node, not_constant(self.graph, "its bias", b))
        if self.is_float_arithmetic(node):
            return self._float(node, "its inputs are float")
        if node.name in self.scores and leaves_no_share(self.graph.constant(b)):
            return self._float(node, MASKS)
        wide = self.forms[x].value if self.forms[x].kind == "wide" else self.codes(x)
        bits = self.bits.bias
        if self.bits.internal is not None and not sources(self.graph, wide):
            if node.name in self.settled:
                bits = BIAS_BITS
            else:
                wide = self.internal(x)  # a bias with few bits does not fit the scale of a product
        self.connect(node, wide, self.constant(b, Role.BIAS, bits, True, node.name))
        return "wide", node.name

    def _through(self, node: Node) -> tuple[str, str]:
        form = self.forms[node.inputs[0]]
        self.connect(node, form.value)
        if node.inputs[0] in self.normed:
            self.normed.add(node.name)
        return form.kind, node.name

    def _sum(self, node: Node) -> tuple[str, str]:
        if self.is_float_arithmetic(node):
            return self._float(node, "its inputs are float")
        leaky = self.leaky.get(node.name)
        if leaky is not None:
            x, product = leaky
            self.connect(node, self.internal(x), self.forms[product].value)
            return "wide", node.name
        if node.op in CLIPS and self._clip(node):
            return "wide", node.name
        if self.bits.output and node.name in self.leaving:
            self.graph.set_attrs(node.name, outside=True)
            return self._float(node, "it only sums outputs of the network")
        if node.name in self.scores and self.masked(node):
            return "codes", node.name
        if node.name in self.scores and any(map(self.is_mask, node.inputs)):
            return self._float(node, MASKS)
        take = self.kept if node.name in self.gates.sums else self.codes
        self.connect(
            node, *self.on_one_scale([self.given_addend(node, v) or take(v) for v in node.inputs])
        )
        return "wide", node.name

    def _clip(self, node: Node) -> bool:
        """Clip a wide value to a constant on its own scale, before it is narrowed.

        The result of a product has no scale yet, so it gets the internal stage first.
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

    def _product(self, node: Node) -> tuple[str, str]:
        if self.is_float_arithmetic(node):
            return self._float(node, "its inputs are float")
        if (count := self.count(node)) is not None:
            return count
        constants = [v for v in node.inputs if self.forms[v].kind == "const"]
        data = [v for v in node.inputs if v not in constants]
        if not constants or not data or node.op == "batch_matmul":
            gated = node.name in self.gates.products and any(
                self.forms[v].kind == "codes" for v in node.inputs
            )
            self.connect(node, *map(self.kept if gated else self.codes, node.inputs))
            return "wide", node.name
        x, c = data[0], constants[0]
        if marks_of(node).pool:
            factor = self.constant(c, Role.CONSTANT, self.bits.constant, signed=False)
            self.connect(node, self.forms[x].value, factor)
            return "wide", node.name
        if (x, node.name) in self.leaky_products:
            self.connect(
                node,
                self.internal(x),
                self.constant(c, Role.CONSTANT, self.bits.slope, signed=True),
            )
            bits = self.bits.internal or self.bits.slope
            spec = self.spec(bits, True, Role.INTERNAL, source=node.name)
            return "wide", self.quantizer(node.name, node.name, spec)
        scale = self.factor(node, c, Role.SCALE, self.bits.scale, True)
        self.connect(node, self.unrounded(node, x) or self.codes(x), scale)
        return "wide", node.name

    def _concat(self, node: Node) -> tuple[str, str]:
        carried = any(state_before(self.graph, self.forms[v].value) for v in node.inputs)
        if not carried and all(self.forms[v].kind in (*OUTSIDE, "const") for v in node.inputs):
            return self._float(node, "all its inputs are float")
        take = self.kept if node.name in self.state_moves else self.codes
        codes = [take(value) for value in node.inputs]
        self.connect(node, *self.on_one_scale(codes, one_sign=True))
        return "codes", node.name

    def _move(self, node: Node) -> tuple[str, str]:
        if padding_value(node):
            return self._float(node, f"its padding value {padding_value(node)} is not a code")
        form = self.forms[node.inputs[0]]
        if form.kind in (*OUTSIDE, "const"):
            self.connect(node, form.value)
            return "input" if form.kind == "input" else "float", node.name
        if node.name in self.gates.moves | self.state_moves:
            self.connect(node, self.kept(node.inputs[0]))
        else:
            width = self.bits.output if node.name in self.leaving else None
            self.connect(node, self.codes(node.inputs[0], width))
        return "codes", node.name

    def _table(self, node: Node) -> tuple[str, str]:
        if self.forms[node.inputs[0]].kind in (*OUTSIDE, "const"):
            return self._float(node, "its input is float")
        width = self.bits.output if node.name in self.leaving else None
        bits, given = width or self._activation_bits(node.name), self.given_after(node)
        spec = self.spec(bits, self._has_sign(node.name), Role.ACTIVATION, table=True)
        spec = self.spec_of_inverse(node) or spec
        if given is not None and given.exponent is not None:
            spec = replace(spec, bits=given.bits, signed=given.signed, exponent=given.exponent)
        x = self.table_codes(node.inputs[0])
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
        """A layer norm: standardized with the internal stage's bits, then a product and a bias."""
        x, gamma, beta = node.inputs
        if self.forms[x].kind in ("float", "const"):
            return self._float(node, "its input is float")
        if {self.forms[v].kind for v in (gamma, beta)} != {"const"}:
            return self._float(node, not_constant(self.graph, "its scale and offset", gamma, beta))
        channels = channels_of(self.graph, gamma) or 0
        most = min(widest_input(channels), MAX_NORM_STAGE_BITS)
        if most < MIN_NORM_BITS:
            return self._float(node, f"{channels} channels are too many")
        source = "" if self.forms[x].kind == "wide" else self.codes(x)
        if not source or sources_spec(self.graph, source).bits > most:
            source = self.internal(x, most)
        bits = min(self.bits.internal or self.bits.slope, MAX_NORM_STAGE_BITS)
        spec = result_spec(self.spec(bits, True, Role.INTERNAL), channels)
        domain = sources_spec(self.graph, source)
        attrs = {"epsilon": node.typed(NormAttrs).epsilon, "domain": domain, "spec": spec}
        normal = self.graph.add("standardize", source, name=f"{node.name}/normal", attrs=attrs)
        scaled = self.graph.add("mul", normal, gamma, name=f"{node.name}/scale")
        self.rewriter.rule = "standardize"
        self.rewriter.log(node, f"{normal}: {spec}; then a product and a bias")
        self.forms[normal] = ValueForm("codes", normal)
        self.forms[scaled] = ValueForm(*self._product(self.graph.nodes[scaled]))
        shifted = Node(node.name, "bias_add", (scaled, beta), control=node.control)
        self.graph.replace(shifted)
        self.normed.add(node.name)
        return self._bias(shifted)

    def _softmax(self, node: Node) -> tuple[str, str]:
        """A softmax before a layer: codes to the internal stage, over the last axis."""
        x, rank = node.inputs[0], self.graph.types[node.name].rank
        if self.forms[x].kind in (*OUTSIDE, "const"):
            return self._float(node, "its input is float")
        if rank is None:
            return self._float(node, "its rank is unknown")
        source, axis = self.codes(x, self.bits.table), node.typed(AxisAttrs).axis % rank
        last = axis == rank - 1
        moved = (*range(axis), *range(axis + 1, rank), axis)
        if not last:
            source = self.graph.add(
                "transpose", source, name=f"{node.name}/moved", attrs={"perm": moved}
            )
        bits = min(self.bits.internal or self.bits.slope, MAX_NORM_STAGE_BITS)
        spec = softmax_spec(self.spec(bits, True, Role.INTERNAL))
        attrs = {"domain": sources_spec(self.graph, source), "spec": spec}
        made = Node(node.name, "integer_softmax", (source,), attrs, node.control)
        if not last:
            inner = self.graph.add(
                "integer_softmax", source, name=f"{node.name}/softmax", attrs=attrs
            )
            back = {"perm": tuple(moved.index(i) for i in range(rank))}
            made = Node(node.name, "transpose", (inner,), back, node.control)
        self.graph.replace(made)
        self.rewriter.rule = "softmax"
        self.rewriter.log(node, f"softmax on codes: {spec}")
        return "wide", node.name

    def _float(self, node: Node, reason: str = "") -> tuple[str, str]:
        self.connect(node, *(self.exact(v, self.bits.output) for v in node.inputs))
        if node.op == "input":
            return "input", node.name
        self.rewriter.rule = "integer-form"
        kind = (
            f"`{kind_of(node)}` is not supported"
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
        """Make all members of a concat signed if one is: the joined tensor has one 8-bit type."""
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
                            self.graph.nodes[member], f"signed, like other members of {node.name}"
                        )
                        changed = True

    def _set_table_domains(self) -> None:
        for node in list(self.graph.nodes.values()):
            if node.op in ("lookup", "standardize", "integer_softmax"):
                self.graph.set_attrs(node.name, domain=sources_spec(self.graph, node.inputs[0]))
