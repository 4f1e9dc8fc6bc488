"""One sweep that gives every quantizer its exponent (docs/numerics.md, section 5).

In topological order each node runs once over the whole calibration set, on inputs that are already
quantized; a quantizer's exponent is chosen when the sweep reaches it, from the numbers that
reach it. A scale group takes the largest range among its members: members met later may
coarsen it, which the sweep does not run again for. Where costs of members can be added, the
group's exponent is chosen before the sweep (`qgraph.quant.joint`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from qgraph.errors import UsageError
from qgraph.interpret import run_node
from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.activation import POINTWISE
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.types import Array, QuantSpec
from qgraph.numerics import checked_exponent, exponent_for_max, frozen_exponent
from qgraph.parallel import Each, over_chunks
from qgraph.progress import Steps, silent_steps
from qgraph.quant.constant_scales import WEIGHT_METHODS, Exponent, constant_exponent
from qgraph.quant.data import chunk_count, chunk_inputs
from qgraph.quant.joint import FINER, joint_exponents
from qgraph.quant.output_error import consumers_of, exponent_by_output
from qgraph.quant.shifts import check_shifts, nearest_legal
from qgraph.quant.thresholds import BY_OUTPUT, NAMES, choose_exponent, range_of
from qgraph.quant.topology import QUANTIZERS, leaving, value_exponent
from qgraph.quant.values import Values


@dataclass(frozen=True)
class Calibration:
    """How thresholds are found.

    `method`: of activations, as `qgraph.quant.thresholds` has it; `weights`: of weights, as
    `qgraph.quant.constant_scales` has it. `of_float`: thresholds are for what the float network
    has, not for what is left of it before: steps that follow will bring numbers back to these.
    """

    method: str = "kl_j"
    shift: tuple[int, int] = (-31, 62)
    weights: str = "max"
    of_float: bool = False

    def __post_init__(self) -> None:
        for method, known in ((self.method, NAMES), (self.weights, WEIGHT_METHODS)):
            if method not in known:
                raise UsageError(
                    f"unknown calibration method `{method}`", hint=f"one of {', '.join(known)}"
                )


def calibrate(
    graph: Graph,
    data: Mapping[str, Array],
    options: Calibration = Calibration(),
    on_node: Steps = silent_steps,
    memory: int | None = None,
) -> None:
    """Write an exponent into every quantizer of `graph`, in place.

    data: one array [samples, ...] for each input of the graph. `on_node(done, total)` is called as
    the sweep goes. memory: bytes of live values beyond which they go to temporary files, half of
    what is free if not given; the result is the same. Raises CalibrationError where data is
    missing, misshaped, NaN or infinite, and ExactnessError where a scale or shift is out of range.
    """
    chunks = chunk_inputs(graph, data)
    order = list(graph.topological())
    with over_chunks(chunk_count(chunks)) as each:
        sweep = _Sweep(graph, options, each, Values(graph, chunks, each, memory))
        on_node(0, len(order))
        sweep.start(chunks)
        for done, node in enumerate(order, start=1):
            sweep.visit(graph.nodes[node.name])
            on_node(done, len(order))
        sweep.finish()
    graph.facts.add("calibrated")


class _Sweep:
    """The exponents known so far: by value, and by scale group."""

    def __init__(self, graph: Graph, options: Calibration, each: Each, values: Values) -> None:
        self.graph = graph
        self.each = each
        self.options = options
        self.values = values
        self.exponents: dict[str, Any] = {}
        self.groups: dict[str, int] = {}
        self.joint: dict[str, int] = {}
        self.varying: set[str] = set()
        self.leaving = leaving(graph)

    def start(self, chunks: Mapping[str, Sequence[Array]]) -> None:
        """Settle what needs no data, and groups whose members are to be looked at together."""
        for node in self.graph.topological():
            if node.op == "input" or any(node_of(v) in self.varying for v in node.inputs):
                self.varying.add(node.name)
            if node.op == "const":
                self.values.run(node)
            elif node.op == "quantize" and self._holds_constant(node) and not self._follows(node):
                # Groups know their constants before the first activation is met.
                self._settle(node, self._of_constant(node))
        if self.options.method in FINER:
            self.joint = joint_exponents(
                self.graph,
                chunks,
                self.options.method,
                self._constant,
                self._settle_sign,
                self.each,
            )

    def visit(self, node: Node) -> None:
        """Choose the exponent of a quantizer, or work out that of any other node; then run it."""
        if node.op == "const":
            return
        if node.op in QUANTIZERS:
            if node.attrs["spec"].exponent is None and node.name not in self.exponents:
                self._settle(node, self._choose(node))
            node = self._with_exponent(self.graph.nodes[node.name])  # its sign may be new
            if self.options.of_float and node.op == "quantize":
                node = Node(node.name, "identity", node.inputs)
        else:
            self.exponents[node.name] = value_exponent(node, self.exponents)
        self.values.run(node)

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

    # -- which exponent ----------------------------------------------------------------------

    def _holds_constant(self, node: Node) -> bool:
        return node.inputs[0] in self.values.constants

    def _follows(self, node: Node) -> bool:
        """True for a bias that lives on the scale of its accumulator."""
        return self._accumulator(node) is not None

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
        exponent = self.groups.get(spec.group or "", self.exponents[node.name])
        attrs = {**node.attrs, "spec": spec.with_exponent(exponent)}
        return Node(node.name, node.op, node.inputs, attrs)

    def _choose(self, node: Node) -> Exponent:
        spec: QuantSpec = node.attrs["spec"]
        accumulator = self._accumulator(node)
        if accumulator is not None:
            self._make_room(node, accumulator)
            return frozen_exponent(self.exponents[accumulator])
        source = node.inputs[0]
        if self._holds_constant(node):
            return self._of_constant(node)
        if node.op == "lookup":  # what a table stands for, before it is quantized
            function = partial(POINTWISE[node.attrs["function"]], node.attrs)
            chunks = self.values.mapped(source, function)
        else:
            chunks = self.values.chunks(source)
        extremes = range_of(chunks, node.name, self.each)
        spec = self._settle_sign(node, extremes)
        exponent = self._searched(node, spec, chunks, extremes)
        return nearest_legal(exponent, self.exponents.get(source), self.options.shift)

    def _searched(
        self, node: Node, spec: QuantSpec, chunks: Sequence[Array], extremes: tuple[float, float]
    ) -> int:
        if spec.group in self.joint and spec.role != "internal":
            return self.joint[str(spec.group)]
        method = self.options.method
        if spec.role == "internal" or node.name in self.leaving:
            method = "max"
        if method != BY_OUTPUT:
            return choose_exponent(chunks, extremes, spec, method, self.each)
        coarsest = choose_exponent(chunks, extremes, spec, "max", self.each)
        if extremes == (0, 0):
            return coarsest
        consumers = consumers_of(self.graph, node.name, self._constant)
        return exponent_by_output(chunks, spec, coarsest, consumers, self.each)

    def _constant(self, value: str) -> Array | None:
        """A value that depends on no data, quantized as far as its scale is known by now."""
        if value in self.values.constants:
            return self.values.constants[value]
        node = self.graph.producer(value)
        if node.name in self.varying:
            return None
        known: list[Any] = [self._constant(v) for v in node.inputs]
        if node.op in QUANTIZERS:
            if node.attrs["spec"].exponent is None and node.name not in self.exponents:
                return np.asarray(known[0])
            node = self._with_exponent(node)
        return run_node(node, known)[node.values.index(value)]

    def _make_room(self, bias: Node, accumulator: str) -> None:
        """Coarsen the weights of a layer whose bias does not fit the scale of its accumulator.

        Weights may be so small that the bias, on a scale as fine, is past its bits: saturated,
        it would be a wrong constant.
        """
        spec: QuantSpec = bias.attrs["spec"]
        layer = self.graph.producer(accumulator)
        while layer.op == "bias_add":
            layer = self.graph.producer(layer.inputs[0])
        scales = layer.op == "mul" and self._holds_constant(self.graph.producer(layer.inputs[1]))
        if layer.op not in COMPUTE and not scales:
            return
        sizes = np.abs(self.values.constants[bias.inputs[0]].astype(np.float64))
        scale = np.asarray(self.exponents[accumulator])
        peaks = sizes if scale.ndim else sizes.max(initial=0, keepdims=True)
        room = [exponent_for_max(float(p) or 1.0, spec.bits, spec.signed) for p in peaks]
        excess = np.where(peaks > 0, np.maximum(scale - np.array(room), 0), 0)
        if excess.any():
            excess = excess if scale.ndim else excess[0]
            for name in {layer.inputs[1], layer.name, accumulator}:
                self.exponents[name] = frozen_exponent(np.asarray(self.exponents[name]) - excess)

    def _of_constant(self, node: Node) -> Exponent:
        constant = self.values.constants[node.inputs[0]]
        depthwise = any(u.op == "depthwise_conv2d" for u in self.graph.users(node.name))
        return constant_exponent(constant, node.attrs["spec"], depthwise, self.options.weights)

    def _settle_sign(self, node: Node, extremes: tuple[float, float]) -> QuantSpec:
        """An input that is never negative on the calibration data has no use for a sign."""
        spec: QuantSpec = node.attrs["spec"]
        if spec.role != "input" or not spec.signed or extremes[0] < 0 or self._is_joined(node.name):
            return spec
        unsigned = replace(spec, signed=False)
        self.graph.set_attrs(node.name, spec=unsigned)
        return unsigned

    def _is_joined(self, value: str) -> bool:
        """True if a concat takes `value`, moved or not: its members have one sign."""
        users = self.graph.users(value)
        moved = [u.name for u in users if op_definition(u.op).moves and u.op != "concat"]
        return any(u.op == "concat" for u in users) or any(map(self._is_joined, moved))
