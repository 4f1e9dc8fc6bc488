"""Estimate the distribution of an input from the statistics of the first batch norm behind it.

The network is linear from the input to this batch norm. The mean that the batch norm stores is
therefore a linear function of the input's mean, and its variance is a sum of the variances that
noise fields (`qgraph.quant.without_data.noise`) cause there, each weighted by its share.
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
from qgraph.quant.without_data.noise import fields_of
from qgraph.rewrite.constants import Float64

MAX_CHANNELS = 256  # largest number of input channels whose means are fitted
FIELD_SAMPLES = 8  # samples of each noise field, to measure its power at the batch norm

Response = Callable[[Array], Float64]


@dataclass(frozen=True)
class Fit:
    """Mean and deviation of an input's channels, and the share of its power in each field."""

    moments: Moments
    spectrum: Float64


def fitted(graph: Graph, name: str) -> Fit | None:
    """The fit of input `name` of a folded float graph; None without statistics.

    All dimensions of the input except the first must be known.
    """
    first, shape = _first_known(graph, name), graph.types[name].shape
    if first is None or shape is None or len(shape) < 2:
        return None
    value, known = first
    # If a channel is rarely above 0, its statistics after ReLU are hardly informative.
    certain = known.deviation > 0
    if value not in graph.moments:
        certain &= known.mean > -known.deviation / 2
    if not certain.any():
        return None
    respond = _response(graph, name, value)
    zero = respond(np.zeros((1, *_sizes(shape)), np.float32))
    channels = int(shape[-1] or 1)
    mean = np.zeros(channels)
    if channels <= MAX_CHANNELS:
        mean = _mean(shape, respond, zero, known, certain)
    shares = _shares(_powers(shape, respond, zero), np.where(certain, known.deviation, 0) ** 2)
    total = float(shares.sum())
    if not total > 0:
        return None
    return Fit(Moments(mean, np.full(channels, np.sqrt(total))), shares / total)


def _first_known(graph: Graph, name: str) -> tuple[str, Moments] | None:
    """The first value that is linear in the input and has statistics."""
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
    """Compute `value` for the input `name` = x, both [samples, ...], batch by batch."""
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
    """The input's mean, [channels], by least squares, weighted by precision."""
    channels, around = int(shape[-1] or 1), tuple(range(1, len(shape) - 1))
    one_each = np.eye(channels).reshape(channels, *[1] * len(around), channels)
    responses = respond(np.broadcast_to(one_each, (channels, *_sizes(shape))))
    slopes = (responses - zero).mean(axis=around)
    weights = certain / np.maximum(known.deviation, 0.1 * np.median(known.deviation[certain]))
    offset = zero.mean(axis=tuple(range(zero.ndim - 1)))
    wanted = (known.mean - offset) * weights
    return np.asarray(np.linalg.lstsq((slopes * weights).T, wanted, rcond=1e-3)[0])


def _powers(shape: Shape, respond: Response, zero: Float64) -> Float64:
    """The power that each noise field has at the batch norm, [fields, channels]."""
    rng, axes = np.random.default_rng(1), tuple(range(zero.ndim - 1))
    fields = fields_of(shape, FIELD_SAMPLES, rng)
    return np.array([(respond(field) - zero).var(axis=axes) for field in fields])


def _shares(powers: Float64, wanted: Float64) -> Float64:
    """Non-negative shares of the fields whose powers [fields, channels] add up to `wanted`.

    They minimize the relative error, because channels differ by orders of magnitude, with
    multiplicative updates.
    """
    used = (wanted > 0) & (powers.max(axis=0) > 0)
    if not used.any():
        return np.zeros(len(powers))
    ratio = powers[:, used] / wanted[used]
    shares = np.full(len(ratio), 1 / max(float(np.median(ratio.sum(axis=0))), 1e-30))
    for _ in range(500):
        # The geometric mean of both ratios limits the influence of channels that do not fit.
        made = shares @ ratio
        shares = shares * np.sqrt((ratio / made**2).sum(axis=1) / (ratio / made).sum(axis=1))
    return np.asarray(shares)
