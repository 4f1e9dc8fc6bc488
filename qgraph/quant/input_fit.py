"""Estimate the distribution of an input from the statistics of the first batch norm behind it.

Up to there the network is linear in the input. So the mean that the batch norm saw is a linear
function of the input's mean, and the variance it saw is a sum of those that fields of noise
(`qgraph.quant.noise`) leave there, each by its share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array, Moments, Shape
from qgraph.quant.moments import LINEAR, moments_of
from qgraph.quant.noise import fields_of
from qgraph.rewrite.constants import Float64

WIDEST = 256  # input channels whose means are worth a fit
FIELD_SAMPLES = 8  # of each field, to see what the layers before the batch norm make of it

Response = Callable[[Array], Float64]


@dataclass(frozen=True)
class Fit:
    """Mean and deviation of an input's channels, and the share of its power in each field."""

    moments: Moments
    spectrum: Float64


def fitted(graph: Graph, name: str) -> Fit | None:
    """The fit of input `name` of a folded float graph; None where nothing is known of it.

    All dimensions of the input but the first have to be known.
    """
    first, shape = _first_known(graph, name), graph.types[name].shape
    if first is None or shape is None or len(shape) < 2:
        return None
    value, known = first
    # Of a channel that is seldom above 0, the statistics behind its ReLU say next to nothing.
    certain = known.deviation > 0
    if value not in graph.moments:
        certain &= known.mean > -known.deviation / 2
    if not certain.any():
        return None
    respond = _response(graph, name, value)
    zero = respond(np.zeros((1, *_sizes(shape)), np.float32))
    channels = int(shape[-1] or 1)
    mean = np.zeros(channels)
    if channels <= WIDEST:
        mean = _mean(shape, respond, zero, known, certain)
    shares = _shares(_powers(shape, respond, zero), np.where(certain, known.deviation, 0) ** 2)
    total = float(shares.sum())
    if not total > 0:
        return None
    return Fit(Moments(mean, np.full(channels, np.sqrt(total))), shares / total)


def _first_known(graph: Graph, name: str) -> tuple[str, Moments] | None:
    """The first value that is linear in the input and that statistics are known of."""
    linear = {name}
    for node in graph.topological():
        varying = [v for v in node.inputs if graph.constant(v) is None]
        scales = node.op in ("mul", "div") and varying == [node.inputs[0]]
        if varying and linear.issuperset(varying) and (node.op in LINEAR or scales):
            linear.add(node.name)
        if node.name in linear and (known := moments_of(graph, node.name)) is not None:
            return node.name, known
    return None


def _sizes(shape: Shape) -> tuple[int, ...]:
    return tuple(int(d) for d in shape[1:] if d is not None)


def _response(graph: Graph, name: str, value: str) -> Response:
    """Compute `value` where the input `name` is x, both [samples, ...], batch by batch."""
    kind = graph.types[name]
    step = (kind.shape or (1,))[0] or 1

    def respond(x: Array) -> Float64:
        parts = []
        for i in range(0, len(x), step):
            part = np.resize(x[i : i + step], (step, *x.shape[1:])).astype(kind.dtype)
            made = evaluate(graph, {name: part}, [value])[value][: len(x) - i]
            parts.append(made.astype(np.float64))
        return np.concatenate(parts)

    return respond


def _mean(
    shape: Shape, respond: Response, zero: Float64, known: Moments, certain: npt.NDArray[np.bool_]
) -> Float64:
    """The input's mean, [channels], by least squares; each statistic by how sharp it is."""
    channels, around = int(shape[-1] or 1), tuple(range(1, len(shape) - 1))
    one_each = np.eye(channels).reshape(channels, *[1] * len(around), channels)
    responses = respond(np.broadcast_to(one_each, (channels, *_sizes(shape))))
    slopes = (responses - zero).mean(axis=around)
    weights = certain / np.maximum(known.deviation, 0.1 * np.median(known.deviation[certain]))
    offset = zero.mean(axis=tuple(range(zero.ndim - 1)))
    wanted = (known.mean - offset) * weights
    return np.asarray(np.linalg.lstsq((slopes * weights).T, wanted, rcond=1e-3)[0])


def _powers(shape: Shape, respond: Response, zero: Float64) -> Float64:
    """The power that each field of noise has at the batch norm, [fields, channels]."""
    rng, axes = np.random.default_rng(1), tuple(range(zero.ndim - 1))
    fields = fields_of(shape, FIELD_SAMPLES, rng)
    return np.array([(respond(field) - zero).var(axis=axes) for field in fields])


def _shares(powers: Float64, wanted: Float64) -> Float64:
    """Non-negative shares of the fields whose powers [fields, channels] add up to `wanted`.

    By relative error, since channels differ by orders of magnitude; multiplicative updates.
    """
    used = (wanted > 0) & (powers.max(axis=0) > 0)
    if not used.any():
        return np.zeros(len(powers))
    ratio = powers[:, used] / wanted[used]
    shares = np.full(len(ratio), 1 / max(float(np.median(ratio.sum(axis=0))), 1e-30))
    for _ in range(500):
        # The geometric mean of needed and made keeps channels far off from ruling the fit.
        made = shares @ ratio
        shares = shares * np.sqrt((ratio / made**2).sum(axis=1) / (ratio / made).sum(axis=1))
    return np.asarray(shares)
