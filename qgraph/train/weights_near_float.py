"""Move weights that were chosen as codes towards the trained weights, without changing codes."""

from __future__ import annotations

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_if_any
from qgraph.ir.types import Array, QuantSpec, Role
from qgraph.numerics import aligned, dequantize, quantize

# How far a weight may be from the middle of its code, as a share of the distance to the edge. At
# the edge, the first step of training would change the codes that the reconstruction chose: half
# of them go back to the nearest code, whatever the learning rate.
REACH = 0.5


def with_weights_near_float(graph: Graph, floating: Graph) -> Graph:
    """Move reconstructed weights towards the weights of `floating`, within half of their codes.

    Returns a copy of a calibrated graph; `floating` is its float graph. Reconstruction leaves
    weights on the grid, in the middle of their codes, where training takes longest to change one.
    The quantized network stays the same, bit for bit.
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
    """The numbers nearest to `wanted` that are well within the codes of `given`."""
    fixed, half = quantize(given, spec), np.ldexp(0.5, -aligned(spec.exponent, given.shape))
    middle = dequantize(fixed).astype(given.dtype)
    inside = np.clip(wanted, middle - REACH * half, middle + REACH * half).astype(given.dtype)
    same = quantize(inside, spec).codes == fixed.codes
    return np.where(same & (given != wanted), inside, given)
