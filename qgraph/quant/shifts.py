"""Requantization shifts: what a target has, and what exponents ask for."""

from __future__ import annotations

from typing import Any

import numpy as np

from qgraph.errors import ExactnessError
from qgraph.ir.graph import Graph
from qgraph.ir.ops.standardize import standardization
from qgraph.quant.topology import value_exponent
from qgraph.rewrite.constants import channels_of

REQUANTIZED = ("quantize", "standardize")


def nearest_legal(exponent: int, source: Any, shift: tuple[int, int]) -> int:
    """The exponent nearest to `exponent` to which a right shift within `shift` leads.

    source: the exponent of what is requantized, one or an array of them; None where it is float.
    """
    if source is None:
        return exponent
    least, most = shift
    low, high = int(np.max(source)) - most, int(np.min(source)) - least
    return min(max(exponent, low), high)


def check_shifts(graph: Graph, shift: tuple[int, int]) -> None:
    """Raise ExactnessError at a requantization whose right shift is outside `shift`.

    And at a layer norm that has no numbers for the scales there are.
    """
    exponents: dict[str, Any] = {}
    for node in graph.topological():
        exponents[node.name] = value_exponent(node, exponents)
        source = exponents.get(node.inputs[0]) if node.op in REQUANTIZED else None
        if node.op == "standardize":
            channels = channels_of(graph, node.name) or 0
            standardization(node.attrs, channels, source, node.name)
            continue
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
