"""Conditions that depend on layers, in fixed point: comparisons of codes, as masks of one bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from qgraph.ir.graph import Node, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.composed import Steps
from qgraph.ir.reading import padding_value
from qgraph.ir.types import Overflow, QuantSpec, Role
from qgraph.quant.kept_scales import KeptScales
from qgraph.quant.profile import Profile
from qgraph.quant.topology import behind_layers, sources_spec
from qgraph.quant.value_forms import OUTSIDE
from qgraph.rewrite.rewriter import Rewriter

JOINED = {"logical_and": "minimum", "logical_or": "maximum"}
NEGATED = "logical_not"
# What each comparison with 0 is, in steps of a `composed` function: 1 where it holds, else 0.
WITH_ZERO: Mapping[str, Steps] = MappingProxyType(
    {
        "greater": (("sign", (0,), ()), ("relu", (1,), ())),
        "greater_equal": (
            ("neg", (0,), ()), ("sign", (1,), ()), ("relu", (2,), ()), ("sub", (1.0, 3), ()),
        ),
        "equal": (("sign", (0,), ()), ("abs", (1,), ()), ("sub", (1.0, 2), ())),
        "not_equal": (("sign", (0,), ()), ("abs", (1,), ())),
    }
)  # fmt: skip


class LayerConditions(KeptScales):
    """Forms of comparisons whose operands are codes of layers.

    A comparison is a table of the difference of both operands, or of one operand if the other is a
    number.
    """

    def __init__(self, rewriter: Rewriter, profile: Profile) -> None:
        super().__init__(rewriter, profile)
        self.of_layers = behind_layers(self.graph)
        self.conditions: dict[str, Node] = {}  # as they were before any conversion

    def has_codes(self, value: str) -> bool:
        """Whether a condition has an integer form: all that it compares are floats or codes."""
        node = self.conditions.get(node_of(value), self.graph.producer(value))
        if node.name not in self.of_layers:
            return True
        if node.op in (*JOINED, NEGATED) or _is_move(node):
            return all(self.has_codes(v) for v in node.inputs)
        if node.op not in WITH_ZERO:
            return False
        kinds = {self.forms[v].kind for v in node.inputs if v in self.forms}
        known = all(v in self.forms and self.graph.types[v].is_float for v in node.inputs)
        return known and "float" not in kinds and not kinds <= {*OUTSIDE, "const"}

    def comparison(self, node: Node, spec: QuantSpec) -> str:
        """The codes of a comparison of layers: 1 where it holds, else 0."""
        numbers = [self._number(value) for value in node.inputs]
        varying = [v for v, number in zip(node.inputs, numbers, strict=True) if number is None]
        shape = self.graph.types[node.name].shape
        if len(varying) == 1 and self.graph.types[varying[0]].shape == shape:
            x = self.table_codes(varying[0])
            arguments = tuple(0 if number is None else number for number in numbers)
            steps: Steps = (("sub", arguments, ()), *_after(WITH_ZERO[node.op]))
        else:
            first, second = self.on_one_scale([self.codes(value) for value in node.inputs])
            x, steps = self._difference(node, first, second), WITH_ZERO[node.op]
        attrs = {
            "function": "composed", "steps": steps, "domain": sources_spec(self.graph, x),
            "spec": spec,
        }  # fmt: skip
        return self.graph.add("lookup", x, name=f"{node.name}/mask", attrs=attrs)

    def _difference(self, node: Node, first: str, second: str) -> str:
        """The difference of codes, on their scale; where it saturates, it keeps its sign."""
        bits = max(sources_spec(self.graph, value).bits for value in (first, second))
        name = f"{node.name}/difference"
        difference = self.graph.add("sub", first, second, name=name, attrs={"sign_only": True})
        spec = self.spec(bits, True, Role.ACTIVATION, source=difference)
        return self.quantizer(difference, name, replace(spec, overflow=Overflow.SATURATE))

    def _number(self, value: str) -> float | None:
        """The number that a constant has at all places; None for other values."""
        array = self.graph.constant(value)
        if array is None or not array.size or (array != array.flat[0]).any():
            return None
        return float(array.flat[0])


def _is_move(node: Node) -> bool:
    return op_definition(node.op).moves and len(node.inputs) == 1 and not padding_value(node)


def _after(steps: Steps) -> Steps:
    """The steps as they read the result of one step before them."""
    return tuple(
        (op, tuple(a + 1 if isinstance(a, int) else a for a in arguments), attrs)
        for op, arguments, attrs in steps
    )
