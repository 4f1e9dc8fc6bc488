"""Scales of an already quantized file that stay as they are.

Its quantizers are `quantize` nodes with exponents in the float graph, and layers are marked with
the grid of their weights (`MarkedAttrs.grid`). Between a layer and such a quantizer, nothing is
rounded. Inputs of sums and concats that have several scales move to the finest of them, which is
exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qgraph.errors import ExactnessError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import marks_of, spec_of
from qgraph.ir.types import Array, QuantSpec, Role
from qgraph.quant.embeddings import Embeddings
from qgraph.quant.profile import Profile
from qgraph.quant.topology import CLIPS, QUANTIZERS, sources
from qgraph.quant.value_forms import OUTSIDE, acts_on_codes
from qgraph.rewrite.rewriter import Rewriter
from qgraph.words import counted

WIDEST = 32  # bits of a value on a finer scale
BIAS_BITS = 32


def has_kept_scales(graph: Graph) -> bool:
    """Whether a float graph has scales from its file."""
    nodes = graph.nodes.values()
    return any(n.op == "quantize" or marks_of(n).grid is not None for n in nodes)


class KeptScales(Embeddings):
    """Forms of values where a file has given quantizers."""

    def __init__(self, rewriter: Rewriter, profile: Profile) -> None:
        super().__init__(rewriter, profile)
        order = self.graph.topological()
        self.given = {node.name for node in order if node.op == "quantize"}
        self.grids = {n.name: grid for n in order if (grid := marks_of(n).grid) is not None}
        self.settled = _settled(self.graph) if self.given else frozenset()
        self.repeated: list[str] = []  # given quantizers whose input is on their grid already

    def keep_quantizer(self, node: Node) -> tuple[str, str]:
        """A given quantizer; its input if that has the same grid."""
        form, spec = self.forms[node.inputs[0]], spec_of(node)
        if form.kind == "codes" and self._is_within(form.value, spec):
            self.repeated.append(node.name)
            return "codes", form.value
        inner = form.kind == "wide" and spec.bits > max(self.bits.activation, 8)
        usual = Role.INTERNAL if inner else Role.ACTIVATION
        role = Role.INPUT if form.kind in OUTSIDE else usual
        made = self.spec(spec.bits, spec.signed, role, source=form.value)
        exponent = spec.exponent
        assert exponent is not None, node.name
        self.graph.set_attrs(node.name, spec=made.with_exponent(exponent))
        self.connect(node, form.value)
        return "codes", node.name

    def given_after(self, node: Node) -> QuantSpec | None:
        """The spec of the given quantizer that alone uses a node, or several equal ones."""
        users = self.graph.users(node.name)
        specs = {spec_of(user) for user in users if user.name in self.given}
        alone = len(specs) == 1 and all(user.name in self.given for user in users)
        return specs.pop() if alone and not self.graph.is_output(node.name) else None

    def factor(
        self, node: Node, value: str, role: Role, bits: int, signed: bool, use: str = ""
    ) -> str:
        """The quantizer of a constant by which a node multiplies, with its grid in the file."""
        per_channel = role == Role.WEIGHT and self.profile.per_channel
        spec = self.spec(bits, signed, role, per_channel=per_channel)
        given = self.given_constant(node, value, spec)
        return given or self.constant(value, role, bits, signed, use)

    def given_constant(self, node: Node, value: str, spec: QuantSpec) -> str:
        """A quantizer of a node's constant with its grid in the file, if the profile has it.

        spec: what the profile gives the constant. The result is empty without a grid.
        """
        grid, constant = self.grids.get(node.name), self.graph.constant(value)
        if grid is None or constant is None:
            return ""
        self.graph.set_attrs(node.name, grid=None)
        if spec.role == Role.WEIGHT and not grid.signed:  # reciprocals of an average
            spec = self.spec(self.bits.constant, False, Role.CONSTANT)
        reason = self._misfit(grid, constant, spec)
        if reason:
            self.rewriter.rule = "kept-scale"
            self.rewriter.refuse(node, f"the scale of `{value}` is not kept: {reason}")
            self.graph.notes.append(
                f"`{node.name}`: the scale of its constant is not kept: {reason}"
            )
            return ""
        made = replace(spec, signed=True, per_channel=grid.per_channel, exponent=grid.exponent)
        if not spec.signed or not _fits(constant, made):
            made = replace(made, signed=not _fits(constant, replace(made, signed=False)))
        key = f"{value} {made}"
        if key not in self.narrowed:
            self.narrowed[key] = self.quantizer(value, value, made)
        return self.narrowed[key]

    def unrounded(self, node: Node, value: str) -> str:
        """The exact result that a product reads, where the file does not round it.

        A constant with a grid multiplies it, and a given quantizer follows, as in an average whose
        windows at the border are smaller: a sum, a map of reciprocals, one rounding. The result is
        empty for other products.
        """
        form = self.forms[value]
        exact = form.kind == "wide" and value in self.settled and node.name in self.settled
        return form.value if exact and node.name in self.grids else ""

    def given_addend(self, node: Node, value: str) -> str:
        """A constant that a sum adds, with its grid in the file; empty without a grid."""
        grid = self.grids.get(node.name)
        if grid is None or grid.per_channel or self.forms[value].kind != "const":
            return ""
        return self.given_constant(node, value, self.spec(grid.bits, True, Role.CONSTANT))

    def _misfit(self, grid: QuantSpec, constant: Array, spec: QuantSpec) -> str:
        """Why the profile cannot have a grid; empty if it can."""
        if grid.per_channel and not spec.per_channel:
            return "it has one for each channel, and the profile one for each tensor"
        exponents = np.asarray(grid.exponent)
        if exponents.ndim and exponents.size != constant.shape[-1]:
            return "its channels were rearranged"
        codes = np.ldexp(constant.astype(np.float64), exponents)
        if np.any(codes != np.rint(codes)):
            return "the weights were changed by a pass"
        if not any(_fits(constant, replace(grid, bits=spec.bits, signed=s)) for s in (True, False)):
            return f"its codes do not fit the {spec.bits} bits of the profile"
        return ""

    def choice(self, node: Node) -> tuple[str, str] | None:
        """A `select` by a constant between codes of one given scale; None for others.

        It becomes products with 0 and 1, and their sum, which keep the codes. Exporters write
        averages with smaller windows at the border in this way.
        """
        places = self.graph.constant(node.inputs[0])
        values = [self.forms[value] for value in node.inputs[1:]]
        known = [self._given_spec(v.value) if v.kind == "codes" else None for v in values]
        specs = [spec for spec in known if spec is not None]
        one_scale = len({(spec.exponent, spec.signed) for spec in specs}) == 1
        if places is None or len(specs) < len(known) or not one_scale:
            return None
        parts = [
            self._product_with_places(node, value.value, where)
            for value, where in zip(values, (places, ~places), strict=True)
        ]
        total = self.graph.add("add", *parts, name=f"{node.name}/sum")
        spec = max(specs, key=lambda s: s.bits)
        self.graph.replace(Node(node.name, "quantize", (total,), {"spec": spec}, node.control))
        self.rewriter.rule = "choice"
        self.rewriter.log(node, f"products with 0 and 1, and their sum: {spec}")
        return "codes", node.name

    def _product_with_places(self, node: Node, value: str, places: Array) -> str:
        held = self.rewriter.const(places.astype(np.float32), f"{node.name}/places")
        spec = self.spec(1, False, Role.CONSTANT).with_exponent(0)
        return self.graph.add(
            "mul", value, self.quantizer(held, held, spec), name=f"{node.name}/part"
        )

    def on_one_scale(self, values: Sequence[str], one_sign: bool = False) -> list[str]:
        """`values`, which are codes, on the finest scale that any of them was given."""
        if not self.given:
            return list(values)
        known = [self._given_spec(value) for value in values]
        exponents = [spec.exponent for spec in known if spec is not None]
        finest = max((e for e in exponents if isinstance(e, int)), default=0)
        signed = one_sign and any(spec.signed for spec in known if spec is not None)
        return [
            value if spec is None else self._finer(value, spec, finest, signed)
            for value, spec in zip(values, known, strict=True)
        ]

    def note_additions(self) -> None:
        """Note quantizers that the file does not have."""
        if not (self.given or self.grids):
            return
        for name in reversed(self.repeated):
            if not self.graph.users(name) and not self.graph.is_output(name):
                self.graph.remove(name)
        added = [
            node.name
            for node in self.graph.topological()
            if node.op in QUANTIZERS and node.name not in self.given
            if not spec_of(node).role.of_constant and spec_of(node).exponent is None
        ]
        if added:
            self.graph.notes.append(
                f"the profile adds {counted(len(added), 'quantizer')} that the file does not have, "
                f"such as `{added[0]}`"
            )

    def _finer(self, value: str, spec: QuantSpec, exponent: int, signed: bool) -> str:
        becomes_signed = signed and not spec.signed
        more = exponent - int(np.max(spec.exponent or 0)) + int(becomes_signed)
        if not more:
            return value
        if spec.bits + more > WIDEST:
            raise ExactnessError(
                f"its scale and that of another input differ by {more} powers of two",
                node=value,
                hint="quantize the model again: --effort default",
            )
        key = f"{value} {exponent} {signed}"
        if key not in self.narrowed:
            made = self.spec(spec.bits + more, signed or spec.signed, Role.INTERNAL)
            self.narrowed[key] = self.quantizer(value, value, made.with_exponent(exponent))
        return self.narrowed[key]

    def _given_spec(self, value: str) -> QuantSpec | None:
        """The common spec of the quantizers before `value`, if their scales were given."""
        specs = [spec_of(self.graph.nodes[name]) for name in sources(self.graph, value)]
        exponents = {spec.exponent for spec in specs}
        if len(exponents) != 1 or None in exponents:
            return None
        return max(specs, key=lambda s: (s.signed, s.bits))

    def _is_within(self, value: str, spec: QuantSpec) -> bool:
        before = self._given_spec(value)
        return (
            before is not None
            and before.exponent == spec.exponent
            and spec.lo <= before.lo
            and before.hi <= spec.hi
        )


def _fits(constant: Array, spec: QuantSpec) -> bool:
    codes = np.ldexp(constant.astype(np.float64), np.asarray(spec.exponent))
    return bool(codes.min(initial=0) >= spec.lo and codes.max(initial=0) <= spec.hi)


def _settled(graph: Graph) -> frozenset[str]:
    """Nodes whose results all users bring to given quantizers, without rounding before."""
    found: set[str] = set()
    for node in graph.topological()[::-1]:
        users = graph.users(node.name)
        exact = (u.op == "quantize" or (_is_exact(u) and u.name in found) for u in users)
        if users and not graph.is_output(node.name) and all(exact):
            found.add(node.name)
    return frozenset(found)


def _is_exact(node: Node) -> bool:
    scaled = node.op == "mul" and marks_of(node).grid is not None
    return node.op == "bias_add" or node.op in CLIPS or acts_on_codes(node) or scaled
