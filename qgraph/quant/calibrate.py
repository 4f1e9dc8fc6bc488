"""One sweep that gives every quantizer its exponent (docs/numerics.md, section 5).

In topological order each node runs once over the whole calibration set, on inputs that are already
quantized; a quantizer's exponent is chosen when the sweep reaches it, from the numbers that
reach it. A scale group takes the largest range among its members: members met later may
coarsen it, which the sweep does not run again for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.errors import CalibrationError, ExactnessError, UsageError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.activation import POINTWISE
from qgraph.ir.types import Array, QuantSpec
from qgraph.numerics import checked_exponent, exponent_for_max, finest_exponent, frozen_exponent
from qgraph.parallel import Each, over_chunks
from qgraph.quant.data import chunk_inputs
from qgraph.quant.thresholds import METHODS, choose_exponent, range_of
from qgraph.quant.topology import COMPUTE, QUANTIZERS, value_exponent

Exponent = int | tuple[int, ...]

# A channel whose weights are 2^12 times smaller than another's is below the last bit of an 8-bit
# output. Its own scale would buy nothing, and would ask for shifts that no target has.
CHANNEL_SPREAD = 12


@dataclass(frozen=True)
class Calibration:
    """How thresholds of activations are found: a method of `qgraph.quant.thresholds`."""

    method: str = "kl_j"
    shift: tuple[int, int] = (-31, 62)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(
                f"unknown calibration method `{self.method}`", hint=f"one of {', '.join(METHODS)}"
            )


def calibrate(
    graph: Graph,
    data: Mapping[str, Array],
    options: Calibration = Calibration(),
    on_node: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write an exponent into every quantizer of `graph`, in place.

    data: one array [samples, ...] for each input of the graph. `on_node(done, total)` is called as
    the sweep goes. Raises CalibrationError where data is missing, misshaped, NaN or infinite, and
    ExactnessError where a scale or shift is out of range.
    """
    chunks = chunk_inputs(graph, data)
    order = list(graph.topological())
    count = max((len(c) for c in chunks.values()), default=0)
    with over_chunks(count) as each:
        sweep = _Sweep(graph, options, each)
        sweep.start(chunks)
        for done, node in enumerate(order, start=1):
            sweep.visit(graph.nodes[node.name])
            on_node(done, len(order))
        sweep.finish()
    graph.facts.add("calibrated")


class _Sweep:
    def __init__(self, graph: Graph, options: Calibration, each: Each) -> None:
        self.graph = graph
        self.each = each
        self.options = options
        self.exponents: dict[str, Any] = {}
        self.static: dict[str, Array] = {}
        self.chunks: dict[str, list[Array]] = {}
        self.left: dict[str, int] = {}
        self.groups: dict[str, int] = {}
        self.waiting: list[Node] = []

    def start(self, chunks: Mapping[str, list[Array]]) -> None:
        self.chunks.update(chunks)
        self.count = len(next(iter(chunks.values()))) if chunks else 0
        for node in self.graph.nodes.values():
            for value in node.inputs:
                self.left[value] = self.left.get(value, 0) + 1
        # Constants need no data: groups know them before the first activation is met.
        for node in self.graph.topological():
            if node.op == "const":
                self.static[node.name] = node.attrs["value"]
            elif node.op == "quantize" and node.inputs[0] in self.static and self._own_scale(node):
                self._settle(node, self._of_constant(node))

    def visit(self, node: Node) -> None:
        if (
            node.op in QUANTIZERS
            and node.attrs["spec"].exponent is None
            and node.name not in self.exponents
        ):
            self._settle(node, self._choose(node))
        if node.op == "const":
            return
        if node.op in QUANTIZERS:
            node = self._with_exponent(self.graph.nodes[node.name])  # its sign may be new
        else:
            self.exponents[node.name] = value_exponent(node, self.exponents)
        if node.op != "input":
            self._run(node)
        for value in node.inputs:
            self.left[value] -= 1

    def _run(self, node: Node) -> None:
        """Run what needs no data; the rest waits until a threshold is asked for."""
        if op_definition(node.op).evaluate is None:
            raise CalibrationError(f"`{node.op}` cannot be run", node=node.name)
        if all(v in self.static for v in node.inputs):
            self.static[node.name] = np.asarray(
                _evaluate(node, [self.static[v] for v in node.inputs])
            )
        else:
            self.waiting.append(node)

    def _catch_up(self) -> None:
        """Run the nodes that wait, one chunk through all of them before the next.

        So a chunk stays in cache on its way from one quantizer to the next.
        """
        nodes, self.waiting = self.waiting, []
        if not nodes:
            return
        made = {v for node in nodes for v in node.values}
        kept = [v for v in made if self.left.get(v)]

        def at(i: int) -> dict[str, Array]:
            values: dict[str, Any] = {}
            for node in nodes:
                inputs = [
                    self.static[v]
                    if v in self.static
                    else values[v]
                    if v in made
                    else self.chunks[v][i]
                    for v in node.inputs
                ]
                result = _evaluate(node, inputs)
                values.update(
                    zip(node.values, result if node.outputs > 1 else (result,), strict=True)
                )
            return {v: values[v] for v in kept}

        results = [*self.each(at, range(self.count))]
        self.chunks.update({v: [r[v] for r in results] for v in kept})
        for value in [v for v in self.chunks if not self.left.get(v)]:
            del self.chunks[value]

    # -- exponents -------------------------------------------------------------------------

    def _own_scale(self, node: Node) -> bool:
        """False for a bias that lives on the scale of its accumulator."""
        return self._accumulator(node) is None

    def _accumulator(self, node: Node) -> str | None:
        """The accumulator whose scale a bias has to take, if it has one."""
        spec: QuantSpec = node.attrs["spec"]
        if spec.role != "bias" or spec.group is not None:
            return None
        users = [u for u in self.graph.users(node.name) if u.op == "bias_add"]
        return users[0].inputs[0] if users else None

    def _settle(self, node: Node, exponent: Exponent) -> None:
        """Note the exponent; a group keeps the smallest one, which is the largest range.

        A clip has no say: beyond the range of what it clips it may as well saturate.
        """
        group = node.attrs["spec"].group
        if group is not None and isinstance(exponent, int) and node.attrs["spec"].role != "clip":
            self.groups[group] = min(exponent, self.groups.get(group, exponent))
        checked_exponent(exponent, node.name)
        self.exponents[node.name] = exponent

    def _with_exponent(self, node: Node) -> Node:
        spec: QuantSpec = node.attrs["spec"]
        if spec.exponent is not None:
            self.exponents[node.name] = spec.exponent
            return node
        exponent = (
            self.groups.get(spec.group, self.exponents[node.name])
            if spec.group
            else self.exponents[node.name]
        )
        attrs = {**node.attrs, "spec": spec.with_exponent(exponent)}
        return Node(node.name, node.op, node.inputs, attrs)

    def _choose(self, node: Node) -> Exponent:
        spec: QuantSpec = node.attrs["spec"]
        accumulator = self._accumulator(node)
        if accumulator is not None:
            self._make_room(node, accumulator)
            return frozen_exponent(self.exponents[accumulator])
        source = node.inputs[0]
        if source in self.static:
            return self._of_constant(node)
        self._catch_up()
        chunks = self.chunks[source]
        if node.op == "lookup":
            function = POINTWISE[node.attrs["function"]]
            chunks = [*self.each(lambda c: function(node.attrs, c), chunks)]
        extremes = range_of(chunks, node.name, self.each)
        if spec.role == "input" and spec.signed and extremes[0] >= 0:
            spec = self._make_unsigned(node)
        method = "max" if spec.role == "internal" else self.options.method
        exponent = choose_exponent(chunks, extremes, spec, method, self.each)
        return self._legal(exponent, self.exponents.get(source))

    def _make_room(self, bias: Node, accumulator: str) -> None:
        """Coarsen the weights of a layer whose bias does not fit the scale of its accumulator.

        Weights may be so small that the bias, on a scale as fine, is past its bits: saturated,
        it would be a wrong constant.
        """
        spec: QuantSpec = bias.attrs["spec"]
        layer = self.graph.producer(accumulator)
        while layer.op == "bias_add":
            layer = self.graph.producer(layer.inputs[0])
        if layer.op not in COMPUTE:
            return
        sizes = np.abs(self.static[bias.inputs[0]].astype(np.float64))
        scale = np.asarray(self.exponents[accumulator])
        peaks = sizes if scale.ndim else sizes.max(initial=0, keepdims=True)
        room = [exponent_for_max(float(p) or 1.0, spec.bits, spec.signed) for p in peaks]
        excess = np.where(peaks > 0, np.maximum(scale - np.array(room), 0), 0)
        if excess.any():
            excess = excess if scale.ndim else excess[0]
            for name in {layer.inputs[1], layer.name, accumulator}:
                self.exponents[name] = frozen_exponent(np.asarray(self.exponents[name]) - excess)

    def _of_constant(self, node: Node) -> Exponent:
        depthwise = any(u.op == "depthwise_conv2d" for u in self.graph.users(node.name))
        return constant_exponent(self.static[node.inputs[0]], node.attrs["spec"], depthwise)

    def _make_unsigned(self, node: Node) -> QuantSpec:
        """An input that is never negative on the calibration data has no use for a sign."""
        spec: QuantSpec = node.attrs["spec"]
        if self._is_joined(node.name):
            return spec
        unsigned = QuantSpec(**{**spec.__dict__, "signed": False})
        self.graph.set_attrs(node.name, spec=unsigned)
        return unsigned

    def _is_joined(self, value: str) -> bool:
        """True if a concat takes `value`, moved or not: its members have one sign."""
        users = self.graph.users(value)
        moved = [u.name for u in users if op_definition(u.op).moves and u.op != "concat"]
        return any(u.op == "concat" for u in users) or any(map(self._is_joined, moved))

    def _legal(self, exponent: int, source: Any) -> int:
        """The nearest exponent whose requantization shift the target has."""
        if source is None:
            return exponent
        least, most = self.options.shift
        low, high = int(np.max(source)) - most, int(np.min(source)) - least
        return min(max(exponent, low), high)

    def finish(self) -> None:
        """Write exponents into specs: groups first, then the biases that follow accumulators."""
        exponents: dict[str, Any] = {}
        for node in list(self.graph.topological()):
            if node.op not in QUANTIZERS:
                exponents[node.name] = value_exponent(node, exponents)
                continue
            spec: QuantSpec = node.attrs["spec"]
            exponent = spec.exponent
            if exponent is None:
                accumulator = self._accumulator(node)
                exponent = self.groups[spec.group] if spec.group else self.exponents[node.name]
                if accumulator is not None and accumulator in exponents:
                    exponent = frozen_exponent(exponents[accumulator])
                checked_exponent(exponent, node.name)
                self.graph.set_attrs(
                    node.name,
                    spec=self.graph.nodes[node.name].attrs["spec"].with_exponent(exponent),
                )
            exponents[node.name] = exponent
        check_shifts(self.graph, self.options.shift)


def check_shifts(graph: Graph, shift: tuple[int, int]) -> None:
    """Raise ExactnessError at a requantization whose right shift is outside `shift`."""
    exponents: dict[str, Any] = {}
    for node in graph.topological():
        exponents[node.name] = value_exponent(node, exponents)
        source = exponents.get(node.inputs[0]) if node.op == "quantize" else None
        if source is None:
            continue
        needed = np.asarray(source) - np.asarray(exponents[node.name])
        if np.any(needed < shift[0]) or np.any(needed > shift[1]):
            raise ExactnessError(
                f"needs a requantization shift of {needed}, "
                f"the profile allows {shift[0]} to {shift[1]}",
                node=node.name,
                hint="widen `shift` in the profile, or look at who forced the scale group",
            )


def _evaluate(node: Node, inputs: list[Array]) -> Any:
    evaluate = op_definition(node.op).evaluate
    assert evaluate is not None
    # What is not finite is found, and said, where a threshold is chosen.
    with np.errstate(all="ignore"):
        return evaluate(node.attrs, inputs)


def constant_exponent(value: Array, spec: QuantSpec, depthwise: bool = False) -> Exponent:
    """MAX threshold of weights and biases; the finest unclipped scale of other constants.

    Per channel: along the last axis, or the last two ([h, w, c, m]) of `depthwise` filters.
    """
    if spec.role not in ("weight", "bias", "clip"):
        return finest_exponent(value, spec.bits, spec.signed)
    largest = np.abs(np.asarray(value))
    if spec.per_channel:
        columns = largest.reshape(*largest.shape[:2], -1) if depthwise else largest
        peaks = columns.max(axis=tuple(range(columns.ndim - 1)))
        peaks = np.maximum(peaks, np.ldexp(peaks.max(), -CHANNEL_SPREAD))
        return tuple(exponent_for_max(float(p) or 1.0, spec.bits, spec.signed) for p in peaks)
    return exponent_for_max(float(largest.max(initial=0)) or 1.0, spec.bits, spec.signed)
