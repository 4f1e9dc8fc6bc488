"""Move weights that were chosen as codes towards the trained weights, without changing codes."""

from __future__ import annotations

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_if_any
from qgraph.ir.types import Array, QuantSpec, Role
from qgraph.numerics import aligned, dequantize, quantize


def with_weights_near_float(graph: Graph, floating: Graph) -> Graph:
    """Move reconstructed weights as near to the weights of `floating` as their codes allow.

    Returns a copy of a calibrated graph; `floating` is its float graph. Reconstruction leaves
    weights on the grid, where small steps of training would not change a code. The quantized
    network stays the same, bit for bit.
    """
    made = graph.copy()
    for node in graph.topological():
        spec = spec_if_any(node)
        if spec is None or spec.role != Role.WEIGHT or spec.exponent is None:
            continue
        name = node.inputs[0]
        chosen = graph.constant(name)
        trained = floating.constant(name) if name in floating.nodes else None
        if chosen is not None and trained is not None and chosen.shape == trained.shape:
            made.set_attrs(name, value=_nearest(trained, chosen, spec))
    return made


def _nearest(wanted: Array, given: Array, spec: QuantSpec) -> Array:
    """The numbers nearest to `wanted` that have the same codes as `given`."""
    fixed, half = quantize(given, spec), np.ldexp(0.5, -aligned(spec.exponent, given.shape))
    middle = dequantize(fixed).astype(given.dtype)
    edge = np.clip(wanted, middle - half, middle + half).astype(given.dtype)
    inside = np.where(np.abs(wanted - middle) < half, wanted, np.nextafter(edge, middle))
    same = quantize(inside, spec).codes == fixed.codes
    return np.where(same & (given != wanted), inside, given)
