"""Initial scales of weights for training that does not change thresholds."""

from __future__ import annotations

from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Role
from qgraph.quant.constant_scales import constant_exponent
from qgraph.quant.topology import QUANTIZERS
from qgraph.train.state import scale_of, state_of


def with_unclipped_weights(graph: Graph) -> Graph:
    """A copy of a calibrated graph in which the threshold of weights is their largest magnitude.

    A threshold that clips weights is a good start if it is trained, but not if it stays: training
    of weights alone starts from MAX (TQT, table 2). A coarser scale stays, because the bias of the
    layer needs it. Scales that depend on those of weights change with them; others do not. Raises
    UnsupportedError for a graph that cannot be trained.
    """
    made, state = graph.copy(), state_of(graph)
    quantizers = [node for node in graph.topological() if node.op in QUANTIZERS]
    exponents: dict[str, int] = {}  # by scale
    for node in quantizers:
        spec = spec_of(node)
        known = exponents.setdefault(scale_of(node), _exponent(node))
        weights = graph.constant(node.inputs[0])
        if spec.role == Role.WEIGHT and weights is not None:
            largest = constant_exponent(weights, spec)
            assert isinstance(largest, int)  # one scale per tensor: `state_of` refuses others
            exponents[scale_of(node)] = min(known, largest)
    for node in quantizers:
        factors = state.follows.get(node.name)
        if factors is None:
            exponent = exponents[scale_of(node)]
        else:
            exponent = sum(exponents[scale_of(factor)] for factor in factors)
        made.set_attrs(node.name, spec=spec_of(node).with_exponent(exponent))
    return made


def _exponent(node: Node) -> int:
    exponent = spec_of(node).exponent
    assert isinstance(exponent, int)
    return exponent
