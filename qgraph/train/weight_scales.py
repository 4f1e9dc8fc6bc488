"""Initial scales of weights for training that does not change thresholds."""

from __future__ import annotations

from functools import reduce

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Codes, Role
from qgraph.numerics import frozen_exponent
from qgraph.quant.constant_scales import constant_exponent
from qgraph.quant.topology import QUANTIZERS
from qgraph.train.state import scale_of, scales_of


def with_unclipped_weights(graph: Graph) -> Graph:
    """A copy of a calibrated graph in which the threshold of weights is their largest magnitude.

    A threshold that clips weights is a good start if it is trained, but not if it stays: training
    of weights alone starts from MAX (TQT, table 2). A coarser scale stays, because the bias of the
    layer needs it. Scales that depend on those of weights change with them; others do not. Raises
    UnsupportedError for a graph that cannot be trained.
    """
    made, scales = graph.copy(), scales_of(graph)
    quantizers = [node for node in graph.topological() if node.op in QUANTIZERS]
    exponents: dict[str, Codes] = {}  # by scale: one, or one for each channel
    for node in quantizers:
        spec = spec_of(node)
        known = exponents.setdefault(scale_of(node), np.asarray(spec.exponent, np.int64))
        weights = graph.constant(node.inputs[0])
        if spec.role == Role.WEIGHT and weights is not None:
            depthwise = any(u.op == "depthwise_conv2d" for u in graph.users(node.name))
            largest = constant_exponent(weights, spec, depthwise)
            exponents[scale_of(node)] = np.minimum(known, largest)
    for node in quantizers:
        factors = scales.follows.get(node.name, (node,))
        exponent = reduce(np.add, [exponents[scale_of(factor)] for factor in factors])
        made.set_attrs(node.name, spec=spec_of(node).with_exponent(frozen_exponent(exponent)))
    return made
