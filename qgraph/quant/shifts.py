"""Requantization shifts: those that a target supports, and those that exponents need."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from qgraph.errors import ExactnessError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.standardize import StandardizationAttrs, standardization
from qgraph.ir.reading import spec_of
from qgraph.ir.types import AnyExponent
from qgraph.numerics import frozen_exponent
from qgraph.quant.topology import (
    QUANTIZERS,
    ValueExponents,
    keeps_scale,
    multiplies,
    value_exponent,
)
from qgraph.rewrite.constants import channels_of

REQUANTIZED = ("quantize", "standardize")


def nearest_legal(exponent: int, source: AnyExponent | None, shift: tuple[int, int]) -> int:
    """The exponent nearest to `exponent` that a right shift within `shift` can reach.

    source: the exponent before requantization, one or an array; None for a float value.
    """
    if source is None:
        return exponent
    least, most = shift
    low, high = int(np.max(source)) - most, int(np.min(source)) - least
    return min(max(exponent, low), high)


def fit_zeros(graph: Graph, shift: tuple[int, int], zeros: Collection[str]) -> None:
    """Change the scale of values that are all zero, if a later shift is outside `shift`.

    Zeros are exact on every scale. Therefore the zeros of an intermediate stage, or of all weights
    of a layer, can take the scale that a later op needs. zeros: quantizers that had only zeros on
    the data.
    """
    exponents = _exponents(graph)
    for node in reversed(graph.topological()):
        source = exponents.get(node.inputs[0]) if node.op == "quantize" else None
        if source is None:
            continue
        excess = np.asarray(source) - np.asarray(exponents[node.name])
        if np.all(excess >= shift[0]) and np.all(excess <= shift[1]):
            continue
        for quantizer in _free(graph, node.inputs[0], zeros):
            spec = spec_of(quantizer)
            exponent = frozen_exponent(np.asarray(spec.exponent) - excess)
            graph.set_attrs(quantizer.name, spec=spec.with_exponent(exponent))
            exponents = _exponents(graph)


def _exponents(graph: Graph) -> ValueExponents:
    found: ValueExponents = {}
    for node in graph.topological():
        found[node.name] = value_exponent(node, found)
    return found


def _free(graph: Graph, value: str, zeros: Collection[str]) -> list[Node]:
    """The all-zero quantizers that alone determine the scale of `value`; empty if others do too."""
    found: list[Node] = []
    node = graph.producer(value)
    while keeps_scale(node) and graph.use_count(node.name) == 1:
        found += [graph.producer(v) for v in node.inputs[1:]]
        node = graph.producer(node.inputs[0])
    found.append(graph.producer(node.inputs[1]) if multiplies(node) else node)
    groups = {spec_of(n).group for n in found if n.op in QUANTIZERS} - {None}
    joined = [n for n in graph.nodes.values() if n.op in QUANTIZERS and spec_of(n).group in groups]
    alone = {n.name for n in joined} <= {n.name for n in found}
    return found if alone and all(_is_free(graph, node, zeros) for node in found) else []


def _is_free(graph: Graph, node: Node, zeros: Collection[str]) -> bool:
    if node.op != "quantize" or graph.use_count(node.name) != 1:
        return False
    constant = graph.constant(node.inputs[0])
    return node.name in zeros if constant is None else not constant.any()


def check_shifts(graph: Graph, shift: tuple[int, int]) -> None:
    """Raise ExactnessError for a requantization whose right shift is outside `shift`.

    Also raised for a layer norm that does not support its scale.
    """
    exponents: ValueExponents = {}
    for node in graph.topological():
        exponents[node.name] = value_exponent(node, exponents)
        source = exponents.get(node.inputs[0]) if node.op in REQUANTIZED else None
        if node.op == "standardize":
            channels = channels_of(graph, node.name) or 0
            standardization(node.typed(StandardizationAttrs), channels, source, node.name)
            continue
        if source is None:
            continue
        needed = np.asarray(source) - np.asarray(exponents[node.name])
        if np.any(needed < shift[0]) or np.any(needed > shift[1]):
            raise ExactnessError(
                f"needs a requantization shift of {needed}, "
                f"the profile allows {shift[0]} to {shift[1]}",
                node=node.name,
                hint="widen `shift` in the profile, or check which tensors share the scale group",
            )
