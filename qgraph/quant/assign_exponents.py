"""Write given exponents into the quantizers of a graph, instead of a calibration."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qgraph.errors import CalibrationError, ExactnessError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import AnyExponent, Exponent, Role
from qgraph.numerics import checked_exponent, frozen_exponent
from qgraph.quant.constant_scales import bias_excess
from qgraph.quant.exponents import Exponents, TensorExponent, chosen_quantizers
from qgraph.quant.shifts import check_shifts
from qgraph.quant.step_states import has_fixed_sign
from qgraph.quant.topology import (
    QUANTIZERS,
    ValueExponents,
    followed_accumulator,
    summing_layer,
    value_exponent,
)


def assign_exponents(graph: Graph, exponents: Exponents, shift: tuple[int, int]) -> None:
    """Write exponents into every quantizer of a graph, in place, instead of a calibration.

    Args:
        graph: A graph with quantizers and scale groups.
        exponents: An entry for each quantizer that `chosen_quantizers` lists.
        shift: The least and the greatest legal right shift of a requantization.

    Raises:
        CalibrationError: A tensor is unknown or missing, or its entry does not fit its quantizer or
            scale group. It names the tensor.
        ExactnessError: An exponent or a shift is out of range.

    Examples:
        >>> from qgraph.ir.graph import Graph
        >>> assign_exponents(graph := Graph(), Exponents({}), (-31, 62))
        >>> graph.facts
        {'calibrated'}
    """
    quantizers = {node.name: node for node in chosen_quantizers(graph)}
    _check_names(graph, exponents.tensors, quantizers)
    groups: dict[str, tuple[str, Exponent]] = {}
    for name, node in quantizers.items():
        spec = spec_of(node)
        if name in exponents.tensors:
            entry = exponents.tensors[name]
            _check_entry(graph, node, entry)
            signed = spec.signed if entry.signed is None else entry.signed
            made = replace(spec, signed=signed).with_exponent(entry.exponent)
            graph.set_attrs(name, spec=made)
            spec = made
        if spec.group is not None and spec.exponent is not None:
            first = groups.setdefault(spec.group, (name, spec.exponent))
            if first[1] != spec.exponent:
                raise CalibrationError(
                    f"has exponent {spec.exponent}, `{first[0]}` has {first[1]}, and both share a "
                    "scale",
                    node=name,
                    hint=f"give all of scale group {spec.group} one exponent: "
                    + ", ".join(n for n, q in quantizers.items() if _group(q) == spec.group),
                )
    _settle_biases(graph)
    check_shifts(graph, shift)
    graph.facts.add("calibrated")


def _group(node: Node) -> str | None:
    group: str | None = spec_of(node).group
    return group


def _check_names(
    graph: Graph, given: Mapping[str, TensorExponent], quantizers: Mapping[str, Node]
) -> None:
    for name in given:
        if name not in quantizers:
            follows = name in graph.nodes and graph.nodes[name].op in QUANTIZERS
            near = difflib.get_close_matches(name, quantizers, n=1)
            raise CalibrationError(
                "its exponent follows from others and cannot be given"
                if follows
                else "the network has no quantizer of this name",
                node=name,
                hint="take the entry out"
                if follows or not near
                else f"did you mean `{near[0]}`? Names depend on the plan and the passes",
            )
    for name, node in quantizers.items():
        if name not in given and spec_of(node).exponent is None:
            raise CalibrationError(
                "its exponent is not given",
                node=name,
                hint="exponents are for a network of the same plan, passes and profile; "
                "give all of its tensors",
            )


def _check_entry(graph: Graph, node: Node, entry: TensorExponent) -> None:
    spec = spec_of(node)
    checked_exponent(entry.exponent, node.name)
    if entry.bits is not None and entry.bits != spec.bits:
        raise CalibrationError(
            f"its exponent is for {entry.bits} bits, the profile gives it {spec.bits}",
            node=node.name,
            hint="give the profile that the exponents were written with",
        )
    if entry.signed is not None and entry.signed != spec.signed and not _may_lose_sign(graph, node):
        kinds = {True: "signed", False: "unsigned"}
        raise CalibrationError(
            f"its exponent is for {kinds[entry.signed]} codes, the network has "
            f"{kinds[spec.signed]} ones",
            node=node.name,
        )
    if spec.exponent is not None and spec.exponent != entry.exponent:
        raise CalibrationError(
            f"its exponent is {spec.exponent} by its op, not {entry.exponent}", node=node.name
        )
    _check_channels(graph, node, entry.exponent)


def _may_lose_sign(graph: Graph, node: Node) -> bool:
    """Whether `node` is an input, whose sign depends on the data."""
    spec = spec_of(node)
    return spec.role == Role.INPUT and spec.signed and not has_fixed_sign(graph, node.name)


def _check_channels(graph: Graph, node: Node, exponent: Exponent) -> None:
    spec = spec_of(node)
    if not spec.per_channel:
        if not isinstance(exponent, int):
            raise CalibrationError(
                f"has one scale, and {len(exponent)} exponents are given", node=node.name
            )
        return
    shape = graph.types[node.name].shape or (None,)
    depthwise = any(user.op == "depthwise_conv2d" for user in graph.users(node.name))
    channels = int(np.prod([d or 1 for d in shape[-2 if depthwise else -1 :]]))
    count = 1 if isinstance(exponent, int) else len(exponent)
    if isinstance(exponent, int) or count != channels:
        raise CalibrationError(
            f"has {channels} scales, one for each channel, and {count} exponents are given",
            node=node.name,
        )


def _settle_biases(graph: Graph) -> None:
    """Give biases the exponents of their accumulators. Raises CalibrationError if one overflows."""
    known: ValueExponents = {}
    for node in list(graph.topological()):
        if node.op == "bias_add":
            bias = graph.producer(node.inputs[1])
            if followed_accumulator(graph, bias) == node.inputs[0]:
                _settle_bias(graph, bias, node.inputs[0], known[node.inputs[0]])
                known[bias.name] = spec_of(graph.nodes[bias.name]).exponent
        if node.name not in known:
            known[node.name] = value_exponent(graph.nodes[node.name], known)


def _settle_bias(graph: Graph, bias: Node, accumulator: str, exponent: AnyExponent | None) -> None:
    if exponent is None:
        raise CalibrationError("its accumulator has no scale", node=bias.name)
    spec = spec_of(bias)
    scale = np.asarray(exponent)
    checked_exponent(scale, bias.name)
    value = graph.constant(bias.inputs[0])
    layer = summing_layer(graph, accumulator)
    if value is not None and layer is not None:
        excess = int(bias_excess(value, scale, spec).max(initial=0))
        if excess > 0:
            raise ExactnessError(
                f"its exponent is too large for the bias `{bias.inputs[0]}`, which has the scale "
                f"of the sum and {spec.bits} bits",
                node=layer.inputs[1],
                hint=f"make it smaller by {excess}, or that of the layer's input",
            )
    graph.set_attrs(bias.name, spec=spec.with_exponent(frozen_exponent(scale)))
