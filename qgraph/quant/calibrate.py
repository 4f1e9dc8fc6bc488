"""Calibration: one sweep sets the exponent of every quantizer (docs/numerics.md, section 5).

In topological order, each node runs once over the whole calibration set, on inputs that are already
quantized. When the sweep reaches a quantizer, its exponent is chosen from the values there. A scale
group takes the largest range of its members: later members may make the scale coarser, and the
sweep does not run again for this. Members that contain only zeros are exact on every scale and are
ignored. If costs of members can be added, the exponent of the group is chosen before the sweep
(`qgraph.quant.joint`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qgraph.choices import CalibrationMethod, WeightMethod, chosen
from qgraph.errors import ExactnessError
from qgraph.interpret import run_node
from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.ops.standardize import StandardizationAttrs, finest_input
from qgraph.ir.ops.structure import TableAttrs
from qgraph.ir.reading import only_rounds, spec_of
from qgraph.ir.types import Array, Exponent, QuantSpec, Role
from qgraph.numerics import MAX_EXPONENT, checked_exponent, exponent_for_max, frozen_exponent
from qgraph.parallel import Each, over_chunks
from qgraph.progress import Steps, silent_steps
from qgraph.quant.constant_scales import bias_excess, constant_exponent
from qgraph.quant.float_statistics import FloatStatistics, statistics_of_chunks
from qgraph.quant.graph_values import GraphValues
from qgraph.quant.index_check import check_indices
from qgraph.quant.joint import FINER, joint_exponents, members_of
from qgraph.quant.output_error import consumers_of, exponent_by_output
from qgraph.quant.peers import ALONE, Peers, each_with
from qgraph.quant.running_tensor import RunningTensor
from qgraph.quant.samples.data import chunk_count, chunk_inputs
from qgraph.quant.shifts import check_shifts, fit_zeros, nearest_legal
from qgraph.quant.step_states import has_fixed_sign
from qgraph.quant.thresholds import Distribution, Range, choose_exponent
from qgraph.quant.topology import (
    QUANTIZERS,
    ValueExponents,
    final_nodes,
    followed_accumulator,
    is_for_sign,
    known_exponent,
    sources,
    sources_spec,
    summing_layer,
    value_exponent,
)
from qgraph.rewrite.constants import channels_of

# Powers of two by which the scale of an all-zero tensor may differ from that of its source.
ZERO_SPREAD = 8
NO_EXPONENT_LIMIT = 1 << 16  # no limit


@dataclass(frozen=True)
class Calibration:
    """How thresholds are chosen.

    method: for activations, see `qgraph.quant.thresholds`. weights: for weights, see
    `qgraph.quant.constant_scales`. of_float: choose thresholds for the values of the float
    network instead of the quantized one, because later steps bring values back to these.
    """

    method: CalibrationMethod = CalibrationMethod.KL_J
    shift: tuple[int, int] = (-31, 62)
    weights: WeightMethod = WeightMethod.MAX
    of_float: bool = False

    def __post_init__(self) -> None:
        method = chosen(CalibrationMethod, self.method, "calibration method")
        weights = chosen(WeightMethod, self.weights, "calibration method of weights")
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "weights", weights)


def calibrate(
    graph: Graph,
    data: Mapping[str, Array],
    options: Calibration = Calibration(),
    on_node: Steps = silent_steps,
    memory: int | None = None,
    statistics: FloatStatistics | None = None,
) -> None:
    """Write an exponent into every quantizer of `graph`, in place.

    data: one array [samples, ...] for each input of the graph. on_node: called with the number of
    nodes that are done and their total. memory: bytes of live values above which temporary files
    are used; by default half of the free memory. The result does not depend on it. statistics:
    those of the same graph and samples, if they are known. Raises CalibrationError if data is
    missing, has a wrong shape, or contains NaN or infinity, and ExactnessError if a scale or shift
    is out of range.
    """
    calibrate_chunks(graph, chunk_inputs(graph, data), options, on_node, memory, statistics)


def calibrate_chunks(
    graph: Graph, chunks: Mapping[str, Sequence[Array]], options: Calibration,
    on_node: Steps = silent_steps, memory: int | None = None,
    statistics: FloatStatistics | None = None, peers: Peers = ALONE,
) -> None:  # fmt: skip
    """As `calibrate`, on samples in chunks, of which each of the `peers` has some."""
    order = list(graph.topological())
    with over_chunks(chunk_count(chunks)) as chunk_map:
        each = each_with(chunk_map, peers)
        grouped = options.method in FINER and bool(members_of(graph))
        if statistics is None and (options.of_float or grouped):
            statistics = statistics_of_chunks(graph, chunks, each, peers=peers)
        values = GraphValues(graph, chunks, each, memory)
        sweep = _Sweep(graph, options, each, values, statistics, peers)
        on_node(0, len(order))
        sweep.start(chunks)
        for done, node in enumerate(order, start=1):
            sweep.visit(graph.nodes[node.name])
            on_node(done, len(order))
        sweep.finish()
    graph.facts.add("calibrated")


class _Sweep:
    """The exponents chosen so far, by value and by scale group."""

    def __init__(
        self, graph: Graph, options: Calibration, each: Each, values: GraphValues,
        statistics: FloatStatistics | None, peers: Peers,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.peers = peers
        self.statistics = statistics
        self.each = each
        self.options = options
        self.values = values
        self.exponents: ValueExponents = {}
        self.groups: dict[str, int] = {}
        self.zero_groups: dict[str, int] = {}
        self.joint: dict[str, int] = {}
        self.varying: set[str] = set()
        self.zeros: set[str] = set()
        self.final_nodes = final_nodes(graph)

    def start(self, chunks: Mapping[str, Sequence[Array]]) -> None:
        """Set the exponents of constants, and of groups whose members are examined together."""
        for node in self.graph.topological():
            if node.op == "input" or any(node_of(v) in self.varying for v in node.inputs):
                self.varying.add(node.name)
            if node.op == "const":
                self.values.run(node)
            elif node.op == "quantize" and self._holds_constant(node) and not self._follows(node):
                # The constants of a group come before its first activation.
                self._settle(node, self._of_constant(node), self._is_zero_constant(node))
        if self.options.method in FINER and self.statistics is not None:
            self.joint = joint_exponents(
                self.graph,
                chunks,
                self.options.method,
                self.statistics,
                self._constant,
                self._settle_sign,
                self.each,
            )

    def visit(self, node: Node) -> None:
        """Choose the exponent of a quantizer, or compute that of another node, and run the node."""
        if node.op == "const":
            return
        if node.op in QUANTIZERS:
            if spec_of(node).exponent is None and node.name not in self.exponents:
                self._settle(node, *self._choose(node))
            check_indices(node, self.values)
            node = self._with_exponent(self.graph.nodes[node.name])  # its sign may have changed
            self.exponents[node.name] = spec_of(node).exponent  # the exponent of its group so far
            if self.options.of_float and only_rounds(node):
                node = Node(node.name, "identity", node.inputs)
        else:
            self.exponents[node.name] = value_exponent(node, self.exponents)
        self.values.run(node)

    def finish(self) -> None:
        """Write exponents into specs: groups first, then the biases that follow accumulators."""
        exponents: ValueExponents = {}
        for node in list(self.graph.topological()):
            if node.op not in QUANTIZERS:
                exponents[node.name] = value_exponent(node, exponents)
                continue
            spec = spec_of(node)
            exponent = spec.exponent
            if exponent is None:
                accumulator = followed_accumulator(self.graph, node)
                if accumulator is not None and accumulator in exponents:
                    exponent = known_exponent(exponents, accumulator)
                elif spec.group:
                    exponent = self._group_exponent(spec.group)
                else:
                    exponent = known_exponent(self.exponents, node.name)
                checked_exponent(exponent, node.name)
                self.graph.set_attrs(
                    node.name,
                    spec=spec_of(self.graph.nodes[node.name]).with_exponent(exponent),
                )
            exponents[node.name] = exponent
        fit_zeros(self.graph, self.options.shift, self.zeros)
        check_shifts(self.graph, self.options.shift)

    # -- which exponent ----------------------------------------------------------------------

    def _holds_constant(self, node: Node) -> bool:
        return node.inputs[0] in self.values.constants

    def _follows(self, node: Node) -> bool:
        """True for a bias that has the scale of its accumulator."""
        return followed_accumulator(self.graph, node) is not None

    def _settle(self, node: Node, exponent: Exponent, zero: bool = False) -> None:
        """Record the exponent; a group keeps the smallest one, which has the largest range.

        Clips are ignored, since they may saturate beyond the range of the value that they clip, and
        so are differences whose sign is used, and members that are `zero` everywhere.
        """
        spec = spec_of(node)
        if spec.group is None or not isinstance(exponent, int):
            checked_exponent(exponent, node.name)
        else:
            saturates = spec.role == Role.CLIP or is_for_sign(self.graph, node)
            counts = not (zero or saturates)
            known = self.groups if counts else self.zero_groups
            known[spec.group] = min(exponent, known.get(spec.group, exponent))
            exponent = min(exponent, MAX_EXPONENT)  # that of the group is checked at the end
            checked_exponent(exponent, node.name)
        self.exponents[node.name] = exponent

    def _group_exponent(self, group: str) -> int:
        """The exponent of a group; if all of its members are zeros, the exponent of these."""
        return self.groups[group] if group in self.groups else self.zero_groups[group]

    def _with_exponent(self, node: Node) -> Node:
        spec = spec_of(node)
        if spec.exponent is not None:
            self.exponents[node.name] = spec.exponent
            return node
        if spec.group in self.groups:
            exponent: Exponent = min(self.groups[spec.group], MAX_EXPONENT)
        else:
            exponent = known_exponent(self.exponents, node.name)
        attrs = {**node.attrs, "spec": spec.with_exponent(exponent)}
        return Node(node.name, node.op, node.inputs, attrs)

    def _choose(self, node: Node) -> tuple[Exponent, bool]:
        """The best exponent for a quantizer alone, and whether the quantizer has only zeros."""
        accumulator = followed_accumulator(self.graph, node)
        if accumulator is not None:
            self._coarsen_for_bias(node, accumulator)
            return known_exponent(self.exponents, accumulator), False
        if self._holds_constant(node):
            return self._of_constant(node), self._is_zero_constant(node)
        tensor = self._tensor(node)
        spec = self._settle_sign(node, tensor.range)
        if tensor.range == (0, 0):
            self.zeros.add(node.name)
        exponent = self._searched(node, spec, tensor)
        legal = nearest_legal(exponent, self.exponents.get(node.inputs[0]), self.options.shift)
        return min(legal, self._finest_for_norms(node)), node.name in self.zeros

    def _tensor(self, node: Node) -> Distribution:
        """The input of a quantizer; that of the float network if thresholds are chosen for it."""
        if self.options.of_float and self.statistics is not None:
            return self.statistics.tensors[node.name]
        found, source = RunningTensor(self._is_counted(node)), node.inputs[0]
        exact = node.typed(TableAttrs).exact if node.op == "lookup" else None

        def look(x: Array, ends: Range | None) -> None:
            # The values of the table's function, before they are quantized.
            found.add(exact(x) if exact else x, None if exact else ends)

        self.values.reduced(source, look)
        found.join(self.peers)
        return found.result(node.name)

    def _is_counted(self, node: Node) -> bool:
        """Whether a quantizer's exponent depends on a histogram."""
        spec, method = spec_of(node), self._method(node)
        return spec.group not in self.joint and method not in (
            CalibrationMethod.MAX, CalibrationMethod.OUTPUT,
        )  # fmt: skip

    def _method(self, node: Node) -> CalibrationMethod:
        """The method of a quantizer; accumulators, wide stages and outputs are never clipped."""
        kept = spec_of(node).role == Role.INTERNAL or node.name in self.final_nodes
        return CalibrationMethod.MAX if kept else self.options.method

    def _searched(self, node: Node, spec: QuantSpec, tensor: Distribution) -> int:
        if spec.group in self.joint and spec.role != Role.INTERNAL:
            return self.joint[str(spec.group)]
        if tensor.range == (0, 0):
            return self._of_zeros(node, spec)
        method = self._method(node)
        if method != CalibrationMethod.OUTPUT:
            return choose_exponent(tensor, spec, method)
        coarsest = choose_exponent(tensor, spec, CalibrationMethod.MAX)
        consumers = consumers_of(self.graph, node.name, self._constant)
        return exponent_by_output(self._chunks(node), spec, coarsest, consumers, self.each)

    def _chunks(self, node: Node) -> Sequence[Array]:
        """The chunks of a quantizer's input."""
        if node.op == "lookup":
            return self.values.mapped(node.inputs[0], node.typed(TableAttrs).exact)
        return self.values.chunks(node.inputs[0])

    def _finest_for_norms(self, node: Node) -> int:
        """The finest exponent that the users of a node support, if all users are layer norms.

        Numbers much smaller than a layer norm's epsilon need no finer exponent.
        """
        users = self.graph.users(node.name)
        if spec_of(node).group or not users or any(u.op != "standardize" for u in users):
            return NO_EXPONENT_LIMIT
        channels = channels_of(self.graph, node.name) or 1
        return min(finest_input(u.typed(StandardizationAttrs), channels) for u in users)

    def _of_zeros(self, node: Node, spec: QuantSpec) -> int:
        """The exponent of threshold 1, moved close to that of the stage which the zeros come from.

        Otherwise, if the network has tiny or huge numbers, no shift could connect the two scales.
        """
        usual = exponent_for_max(1.0, spec.bits, spec.signed)
        source, stages = self.exponents.get(node.inputs[0]), sources(self.graph, node.inputs[0])
        if source is None:
            return usual
        stage = sources_spec(self.graph, node.inputs[0]) if stages else spec
        wider = (stage.bits - int(stage.signed)) - (spec.bits - int(spec.signed))
        natural = int(np.min(source)) - max(wider, 0)
        return min(max(usual, natural - ZERO_SPREAD), natural + ZERO_SPREAD)

    def _constant(self, value: str) -> Array | None:
        """A value that does not depend on data, quantized if its scale is already known."""
        if value in self.values.constants:
            return self.values.constants[value]
        node = self.graph.producer(value)
        if node.name in self.varying:
            return None
        known = [array for v in node.inputs if (array := self._constant(v)) is not None]
        if len(known) < len(node.inputs):
            return None
        if node.op in QUANTIZERS:
            if spec_of(node).exponent is None and node.name not in self.exponents:
                return np.asarray(known[0])
            node = self._with_exponent(node)
        return run_node(node, known)[node.values.index(value)]

    def _coarsen_for_bias(self, bias: Node, accumulator: str) -> None:
        """Make the scale of a layer's weights coarser if its bias exceeds the accumulator's range.

        If weights are very small, the bias needs more than its bits at such a fine scale. It would
        saturate, which makes it wrong. Weights that are all zero take the scale of the bias.
        """
        layer = summing_layer(self.graph, accumulator)
        if layer is None:
            return
        scale = np.asarray(self.exponents[accumulator])
        excess = bias_excess(self.values.constants[bias.inputs[0]], scale, spec_of(bias))
        if not self._is_zero_constant(self.graph.producer(layer.inputs[1])):
            excess = np.maximum(excess, 0)
        if excess.any():
            excess = excess if scale.ndim else excess[0]
            for name in {layer.inputs[1], layer.name, accumulator}:
                self.exponents[name] = frozen_exponent(np.asarray(self.exponents[name]) - excess)

    def _is_zero_constant(self, node: Node) -> bool:
        return not self.values.constants[node.inputs[0]].any()

    def _of_constant(self, node: Node) -> Exponent:
        constant, spec = self.values.constants[node.inputs[0]], spec_of(node)
        # A clip that is infinite at one end saturates there, which is correct.
        if (np.isnan(constant) if spec.role == Role.CLIP else ~np.isfinite(constant)).any():
            raise ExactnessError(
                "NaN or infinity, which have no fixed-point code",
                node=node.inputs[0],
                hint="check how the float network was trained or exported",
            )
        depthwise = any(u.op == "depthwise_conv2d" for u in self.graph.users(node.name))
        return constant_exponent(constant, spec, depthwise, self.options.weights)

    def _settle_sign(self, node: Node, extremes: tuple[float, float]) -> QuantSpec:
        """Make an input unsigned if it is never negative on the calibration data."""
        spec = spec_of(node)
        if (
            spec.role != Role.INPUT
            or not spec.signed
            or extremes[0] < 0
            or has_fixed_sign(self.graph, node.name)
        ):
            return spec
        unsigned = replace(spec, signed=False)
        self.graph.set_attrs(node.name, spec=unsigned)
        return unsigned
