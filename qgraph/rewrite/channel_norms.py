"""Norms over channels, recognised in any arithmetic that computes them.

A norm is recognised by its results: the arithmetic between a tensor and a result is evaluated on a
few rows of numbers, the parameters of the norm follow from two of them, and the others must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.attributes import AxesAttrs
from qgraph.ir.ops.composed import ELEMENTWISE, evaluated
from qgraph.ir.types import Array, Shape
from qgraph.rewrite.constants import Float64, axis_vector
from qgraph.rewrite.functions import number_of, single_sources

REDUCTIONS: Mapping[str, Callable[..., Array]] = {"mean": np.mean, "sum": np.sum}
RESHAPES = ("reshape", "expand_dims", "squeeze")
ENDS = frozenset({"add", "sub", "mul", "div", "bias_add"})
NARROW, WIDE = 1e-6, 1e3  # scales of the rows, from which epsilon and gamma are computed
SCALES = np.array([1e-3, 0.03, 1.0, 30.0, 1e3])
CLOSE = 1e-6
MAX_EPSILON = 100.0


@dataclass(frozen=True)
class ChannelNorm:
    """`gamma * (x - m) / sqrt(mean((x - m)^2) + epsilon) + beta` over one axis of `source`.

    m is the mean if it is `centred`, else 0 (RMS norm); gamma and beta are float64 [channels].
    """

    source: str
    axis: int
    centred: bool
    gamma: Float64
    beta: Float64
    epsilon: float


@dataclass(frozen=True)
class _Channels:
    """The axis of channels of a tensor, and the shapes of its reductions over that axis."""

    axis: int
    whole: Shape

    @property
    def count(self) -> int:
        return int(self.whole[self.axis] or 0)

    @property
    def kept(self) -> Shape:
        return (*self.whole[: self.axis], 1, *self.whole[self.axis + 1 :])

    @property
    def squeezed(self) -> Shape:
        return (*self.whole[: self.axis], *self.whole[self.axis + 1 :])

    def constant(self, graph: Graph, value: str) -> Any:
        """A number, or a vector along the axis [count]; None if `value` is neither."""
        number = number_of(graph, value)
        return axis_vector(graph, value, self.axis, self.whole) if number is None else number


def norm_axes(graph: Graph) -> tuple[int, ...]:
    """Axes, without the first, that reductions of the graph have, the last axes first.

    They are counted from the end, so that one number fits tensors of all ranks.
    """
    axes = {
        axis if axis < 0 else axis - rank
        for node in graph.nodes.values()
        if node.op in REDUCTIONS and (rank := graph.types[node.inputs[0]].rank)
        for axis in node.typed(AxesAttrs).axes[:1]
    }
    return tuple(sorted(axes, reverse=True))


def norm_at(graph: Graph, root: str, axis: int, order: Mapping[str, int]) -> ChannelNorm | None:
    """The norm over `axis` whose result is `root`, if there is one; one with a mean is preferred.

    axis: counted from the end; norms over the first axis, the batch, are not looked for.
    order: a number for each node, above those of the nodes that it needs.
    """
    if graph.nodes[root].op not in ENDS:
        return None
    found: ChannelNorm | None = None
    known = graph.types[root]
    whole = known.shape or ()
    if len(whole) + axis < 1 or whole[axis] in (None, 1) or not known.is_float:
        return None
    channels = _Channels(axis + len(whole), whole)
    for source, nodes in _regions(graph, root, channels, order):
        made = _fitted(graph, source, nodes, channels)
        if made is not None and made.centred:
            return made
        found = found or made
    return found


def _regions(
    graph: Graph, root: str, channels: _Channels, order: Mapping[str, int]
) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """Values that `root` is computed from within channels, nearest first, with the nodes."""

    def is_parameter(value: str) -> bool:
        return graph.constant(value) is not None and channels.constant(graph, value) is not None

    is_part = partial(_is_part, graph, root=root, channels=channels)
    for source, nodes in single_sources(graph, root, order, is_part, is_parameter):
        reduces = any(node.op in REDUCTIONS for node in nodes)
        if reduces and graph.types[source] == graph.types[root]:
            yield source, nodes


def _is_part(graph: Graph, node: Node, root: str, channels: _Channels) -> bool:
    """Whether a node is an elementwise op or a reduction over channels, of the size of `root`."""
    if node.name != root and (node.control or graph.control_users(node.name)):
        return False
    known, whole = graph.types[node.name], channels.whole
    aligned, squeezed = (whole, channels.kept), channels.squeezed
    if known.dtype != graph.types[root].dtype or known.shape not in (*aligned, squeezed):
        return False
    if node.op == "bias_add" and channels.axis != len(whole) - 1:
        return False
    if node.op in ELEMENTWISE or node.op == "bias_add":
        # A value without the axis would be broadcast along other axes.
        fitting = (squeezed,) if known.shape == squeezed else aligned
        return all(
            graph.types[v].shape in fitting or number_of(graph, v) is not None
            for v in node.inputs
            if known.shape == squeezed or graph.constant(v) is None
        )
    if node.op in RESHAPES:
        return whole not in (known.shape, graph.types[node.inputs[0]].shape)
    if node.op not in REDUCTIONS or graph.types[node.inputs[0]].shape != whole:
        return False
    return tuple(axis % len(whole) for axis in node.typed(AxesAttrs).axes) == (channels.axis,)


def _evaluated(
    graph: Graph, source: str, nodes: tuple[Node, ...], channels: _Channels, x: Float64
) -> Float64:
    """The last of `nodes` on rows x [rows, channels]; reduced values are [rows, 1]."""
    values: dict[str, Array] = {source: x}
    with np.errstate(all="ignore"):
        for node in nodes:
            inputs = [
                values[v] if v in values else _wide(channels.constant(graph, v))
                for v in node.inputs
            ]
            if node.op in REDUCTIONS:
                made = REDUCTIONS[node.op](inputs[0], axis=-1, keepdims=True)
            elif node.op in RESHAPES:
                made = inputs[0]
            else:
                op = "add" if node.op == "bias_add" else node.op
                made = evaluated(op, node.attrs, inputs)
            values[node.name] = np.asarray(made, np.float64)
    return np.broadcast_to(values[nodes[-1].name], x.shape)


def _wide(constant: Array) -> Float64:
    return np.asarray(constant, np.float64)


def _fitted(
    graph: Graph, source: str, nodes: tuple[Node, ...], channels: _Channels
) -> ChannelNorm | None:
    count = channels.count
    rng = np.random.default_rng(0)
    row = rng.normal(size=count) + 0.5
    tried = SCALES[:, None] * (rng.normal(size=(len(SCALES), count)) + rng.normal(size=(5, 1)))
    rows = np.concatenate([[0 * row, NARROW * row, WIDE * row], tried])
    beta, narrow, wide, *found = _evaluated(graph, source, nodes, channels, rows)
    if not np.isfinite([beta, narrow, wide, *found]).all():
        return None
    numbers = [n for node in nodes for v in node.inputs if (n := number_of(graph, v)) is not None]
    for centred in (True, False):
        results = (beta, narrow - beta, wide - beta)
        made = _solved((source, channels.axis), centred, row, results, numbers)
        if made is not None:
            expected = _norm(made, tried)
            tolerance = CLOSE * np.abs(expected).max()
            if np.all(np.abs(np.asarray(found) - expected) <= tolerance):
                return made
    return None


def _solved(
    place: tuple[str, int],
    centred: bool,
    row: Float64,
    results: tuple[Float64, Float64, Float64],
    numbers: list[float],
) -> ChannelNorm | None:
    """Gamma and epsilon from the results for one row at two scales, without beta."""
    beta, narrow, wide = results
    deviation = row - row.mean() if centred else row
    variance = float((deviation**2).mean())
    at = int(np.abs(wide).argmax())
    if wide[at] == 0 or variance == 0:
        return None
    ratio = (narrow[at] / wide[at] * WIDE / NARROW) ** -2.0 if narrow[at] else np.inf
    # ratio = (NARROW^2 v + epsilon) / (WIDE^2 v + epsilon)
    if ratio == 1:
        return None
    epsilon = variance * (ratio * WIDE**2 - NARROW**2) / (1 - ratio)
    epsilon = next((n for n in numbers if abs(n - epsilon) <= 1e-5 * abs(epsilon)), epsilon)
    if not 0 < epsilon < MAX_EPSILON:  # with a larger one, any difference would be a norm
        return None
    gamma = wide * np.sqrt(WIDE**2 * variance + epsilon) / (WIDE * deviation)
    return ChannelNorm(*place, centred, gamma, beta, float(epsilon))


def _norm(norm: ChannelNorm, x: Float64) -> Float64:
    deviation = x - x.mean(axis=-1, keepdims=True) if norm.centred else x
    variance = (deviation**2).mean(axis=-1, keepdims=True)
    result: Float64 = norm.gamma * deviation / np.sqrt(variance + norm.epsilon) + norm.beta
    return result
