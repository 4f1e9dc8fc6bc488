"""Units of learning rates: the steps of the scales that trained constants are rounded on.

Adam moves all elements at the same pace. In a network whose scales differ by powers of two, one
rate for all changes many codes of one layer and none of another.
"""

from __future__ import annotations

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_if_any, value_of
from qgraph.ir.types import QuantSpec, Role
from qgraph.train.kind import RateUnits
from qgraph.train.model import TrainingGraph

FLOAT_CODES = 128


def rate_units(model: TrainingGraph) -> RateUnits:
    """Each variable but the ranges, with the change that moves codes by about one.

    Weights and multipliers have the step of their quantizer, the largest of its channels. A bias
    has the step of the first quantizer of an activation behind it. The gamma of a batch norm, a
    factor of weights, has the change that moves their largest code by one. A constant of a float
    layer has 1/128 of its largest magnitude.
    """
    found = [(variable, _unit(model.graph, name)) for name, variable in model.weights.items()]
    for layer in model.norms.by_layer.values():
        if layer.output is not None:
            spec = _spec_of_constant(model.graph, layer.weights)
            found.append((layer.output.gamma, 1 / FLOAT_CODES if spec is None else -1 / spec.lo))
    return tuple(found)


def _unit(graph: Graph, constant: str) -> float:
    spec = _spec_of_constant(graph, constant)
    if spec is not None and spec.role == Role.BIAS:
        spec = _spec_of_activation(graph, constant)
    if spec is None:
        return float(np.abs(value_of(graph.nodes[constant])).max(initial=0)) / FLOAT_CODES
    return float(np.ldexp(1.0, -np.min(np.asarray(spec.exponent))))


def _spec_of_constant(graph: Graph, constant: str) -> QuantSpec | None:
    specs = [spec_if_any(user) for user in graph.users(constant)]
    return next((spec for spec in specs if spec is not None), None)


def _spec_of_activation(graph: Graph, value: str) -> QuantSpec | None:
    """The spec of the first quantizer of an activation along the first users of `value`."""
    users = graph.users(value)
    while users:
        spec = spec_if_any(users[0])
        if spec is not None and spec.role == Role.ACTIVATION:
            return spec
        users = graph.users(users[0].name)
    return None
