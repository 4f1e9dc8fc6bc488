"""Means and deviations of values, from batch-norm statistics, in closed form.

A batch norm stores statistics of its input and its output in training (`Graph.moments`). If values
are taken as normal variables, the effect of ReLU and clips is known without data (Nagel et al.,
2019, "Data-Free Quantization", appendix C).
"""

from __future__ import annotations

import math

import numpy as np

from qgraph.interpret import run_node
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.types import Array, Moments
from qgraph.rewrite.constants import Float64

# Ops that commute with the mean, as long as exactly one input is not a constant.
LINEAR = frozenset(
    {*COMPUTE, "cast", "bias_add", "avg_pool", "mean", "sum", "add", "sub", "concat", "pad",
     "reshape", "squeeze", "expand_dims", "identity", "resize_nearest", "slice", "neg"}
)  # fmt: skip
Bound = float | Array  # one for all channels, or one for each
_erf = np.vectorize(math.erf, otypes=[np.float64])


def clipped(moments: Moments, low: Bound = 0.0, high: Bound = np.inf) -> Moments:
    """Mean and deviation of a normal variable after `clip(x, low, high)`, channel by channel."""
    mean, deviation = moments.mean, np.maximum(moments.deviation, 0)
    low, high = (np.broadcast_to(np.asarray(v, np.float64), mean.shape) for v in (low, high))
    safe = np.maximum(deviation, np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):
        a, b = (low - mean) / safe, (high - mean) / safe
    below, above = _cumulative(a), 1 - _cumulative(b)
    inside = 1 - below - above
    at_low, at_high = deviation * _density(a), deviation * _density(b)
    bound = np.where(np.isfinite(high), high, 0)
    first = low * below + bound * above + mean * inside + at_low - at_high
    # Relative to the mean of the result, where no large numbers cancel.
    bottom, top, m = low - first, bound - first, mean - first
    second = (
        bottom**2 * below + top**2 * above + (m**2 + deviation**2) * inside
        + (m + bottom) * at_low - (m + top) * at_high
    )  # fmt: skip
    return Moments(first, np.sqrt(np.maximum(second, 0)))


def _cumulative(x: Float64) -> Float64:
    return np.asarray(0.5 * (1 + _erf(x / math.sqrt(2))))


def _density(x: Float64) -> Float64:
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi))


def before_relu(after: Moments) -> Moments:
    """The normal variable whose ReLU has the mean and deviation of `after`.

    The ratio of mean to deviation is limited to -6 to 12. A channel that hardly varies gets its
    mean, and 0 if that is 0.
    """
    mean, deviation = np.maximum(after.mean, 0), np.maximum(after.deviation, 0)
    wanted = mean / np.maximum(deviation, np.finfo(np.float64).tiny)
    low, high = np.full(mean.shape, -6.0), np.full(mean.shape, 12.0)
    for _ in range(50):
        middle = (low + high) / 2
        unit = clipped(Moments(middle, np.ones_like(middle)))
        above = unit.mean / np.maximum(unit.deviation, 1e-300) > wanted
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    t = (low + high) / 2
    unit = clipped(Moments(t, np.ones_like(t)))
    scale = np.where(deviation > 0, deviation / np.maximum(unit.deviation, 1e-300), 0)
    # Beyond 12 deviations, ReLU has no effect.
    far = wanted > 11.9
    return Moments(np.where(far, mean, t * scale), np.where(far, deviation, scale))


def moments_of(graph: Graph, value: str) -> Moments | None:
    """Moments of `value` as a normal variable, from a batch norm at it or after its ReLU."""
    known = graph.moments.get(value)
    if known is not None:
        return known
    for user in graph.users(value):
        if user.op == "relu" and user.name in graph.moments:
            return before_relu(graph.moments[user.name])
    return None


def clip_of(graph: Graph, node: Node) -> tuple[str, Bound, Bound] | None:
    """(x, low, high) if `node` is `clip(x, low, high)` with low 0, in any of its forms."""
    if node.op in ("relu", "relu6"):
        return node.inputs[0], 0.0, 6.0 if node.op == "relu6" else np.inf
    if node.op != "minimum":
        return None
    for x, other in (node.inputs, node.inputs[::-1]):
        bound, inner = graph.constant(other), graph.producer(x)
        if bound is not None and inner.op == "relu" and bound.ndim <= 1 and (bound >= 0).all():
            return inner.inputs[0], 0.0, bound
    return None


def known_moments(graph: Graph, value: str) -> Moments | None:
    """Moments of `value` from a batch norm, through ReLU and clips of a normal variable."""
    clip = clip_of(graph, graph.producer(value))
    if value in graph.moments or clip is None:
        return moments_of(graph, value)
    x, low, high = clip
    moments = moments_of(graph, x)
    return None if moments is None else clipped(moments, low, high)


def expected_means(graph: Graph) -> dict[str, Float64]:
    """E[x] by value, [channels], of all values whose mean follows from statistics.

    Means come from batch norms and pass through linear ops, and through ReLU and clips of normal
    variables. Padding counts, as in a mean over positions.
    """
    means: dict[str, Float64] = {}
    for node in graph.topological():
        found = _expected(graph, node, means)
        if found is not None:
            means[node.name] = found
    return means


def _expected(graph: Graph, node: Node, means: dict[str, Float64]) -> Float64 | None:
    if (moments := known_moments(graph, node.name)) is not None:
        return moments.mean
    products = node.op == "mul" and any(graph.constant(v) is not None for v in node.inputs)
    if not (node.op in LINEAR or products) or not any(v in means for v in node.inputs):
        return None
    inputs = [
        means_map(graph, v, means[v]) if v in means else graph.constant(v) for v in node.inputs
    ]
    known = [x for x in inputs if x is not None]
    if len(known) < len(inputs):
        return None
    (result,) = run_node(node, known)
    return np.asarray(result.mean(axis=tuple(range(result.ndim - 1)), dtype=np.float64))


def means_map(graph: Graph, value: str, mean: Float64) -> Array | None:
    """One sample of `value` that is its mean everywhere; None if its shape is unknown."""
    kind = graph.types[value]
    if kind.shape is None or None in kind.shape[1:]:
        return None
    shape = tuple(int(d) for d in kind.shape[1:] if d is not None)
    batch = kind.shape[0] or 1  # a reshape may contain the batch
    return np.broadcast_to(mean, (batch, *shape)).astype(kind.dtype)
