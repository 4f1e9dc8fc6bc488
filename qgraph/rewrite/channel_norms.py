"""Norms over some axes, recognised in any arithmetic that computes them.

A norm is recognised by its results: the arithmetic between a tensor and a result is evaluated on a
few tensors of numbers, the parameters of the norm follow from two of them, and the others must
agree. Axes along which no parameter varies are short in these tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.attributes import AxesAttrs
from qgraph.ir.ops.composed import ELEMENTWISE, evaluated
from qgraph.ir.types import Array, Shape
from qgraph.rewrite.constants import Float64
from qgraph.rewrite.functions import number_of, single_sources

REDUCTIONS: Mapping[str, Callable[..., Array]] = {"mean": np.mean, "sum": np.mean}
RESHAPES = ("reshape", "expand_dims", "squeeze")
ENDS = frozenset({"add", "sub", "mul", "div", "bias_add"})
NARROW, WIDE = 1e-6, 1e3  # scales of the rows, from which epsilon and gamma are computed
SCALES = np.array([1e-3, 0.03, 1.0, 30.0, 1e3])
CLOSE = 1e-6
MAX_EPSILON = 100.0
SHORT = 4  # the size of an axis along which no parameter varies


@dataclass(frozen=True)
class ChannelNorm:
    """`gamma * (x - m) / sqrt(mean((x - m)^2) + epsilon) + beta` over some axes of `source`.

    m is the mean if it is `centred`, else 0 (RMS norm); gamma and beta are float64 of the rank of
    the source, with size 1 along axes where they do not vary.
    """

    source: str
    axes: tuple[int, ...]
    centred: bool
    gamma: Float64
    beta: Float64
    epsilon: float


@dataclass(frozen=True)
class _Channels:
    """The axes that are normalized, and the shapes of reductions over them."""

    axes: tuple[int, ...]
    whole: Shape

    @property
    def count(self) -> int:
        return math.prod(int(self.whole[axis] or 0) for axis in self.axes)

    @property
    def kept(self) -> Shape:
        return tuple(1 if axis in self.axes else d for axis, d in enumerate(self.whole))

    @property
    def squeezed(self) -> Shape:
        return tuple(d for axis, d in enumerate(self.whole) if axis not in self.axes)

    def constant(self, graph: Graph, value: str) -> Array | None:
        """A constant that is the same for all samples, of the rank of the tensor."""
        number, array = number_of(graph, value), graph.constant(value)
        if number is not None:
            return np.full((1,) * len(self.whole), number)
        if array is None or array.dtype.kind not in "fb" or array.ndim > len(self.whole):
            return None
        made = array.reshape((1,) * (len(self.whole) - array.ndim) + array.shape)
        sizes = zip(made.shape[1:], self.whole[1:], strict=True)
        fits = made.shape[0] == 1 and all(size in (1, whole) for size, whole in sizes)
        if not fits:
            return None
        return made if made.dtype == bool else made.astype(np.float64)


def norm_axes(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """Axes, without the first, that reductions of the graph have, the last axes first.

    They are counted from the end, so that one tuple fits tensors of all ranks.
    """
    found = set[tuple[int, ...]]()
    for node in graph.nodes.values():
        rank = graph.types[node.inputs[0]].rank if node.op in REDUCTIONS else None
        axes = node.typed(AxesAttrs).axes if rank else ()
        if rank and axes:
            found.add(tuple(sorted(axis % rank - rank for axis in axes)))
    return tuple(sorted(found, reverse=True))


def norm_at(
    graph: Graph, root: str, axes: tuple[int, ...], order: Mapping[str, int]
) -> ChannelNorm | None:
    """The norm over `axes` whose result is `root`, if there is one; one with a mean is preferred.

    axes: counted from the end; norms over the first axis, the batch, are not looked for.
    order: a number for each node, above those of the nodes that it needs.
    """
    if graph.nodes[root].op not in ENDS:
        return None
    found: ChannelNorm | None = None
    known = graph.types[root]
    whole = known.shape or ()
    if len(whole) + axes[0] < 1 or not known.is_float:
        return None
    if None in [whole[axis] for axis in axes] or math.prod(whole[axis] or 0 for axis in axes) < 2:
        return None
    channels = _Channels(tuple(axis + len(whole) for axis in axes), whole)
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
        return channels.constant(graph, value) is not None

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
    aligned: tuple[Shape, ...] = (whole, channels.kept)
    squeezed = channels.squeezed
    if known.dtype not in (graph.types[root].dtype, "bool"):
        return False
    if known.shape not in (*aligned, squeezed):
        # Parameters may widen a reduced value along some axes, as gamma of a group norm does.
        if (
            known.shape is None
            or len(known.shape) != len(whole)
            or not _between(known.shape, whole)
        ):
            return False
        aligned = (*aligned, known.shape)
    if node.op in ELEMENTWISE or node.op == "bias_add":
        # A value without the axes would be broadcast along other axes.
        if known.shape == squeezed and squeezed not in aligned:
            shapes = [graph.types[v].shape for v in node.inputs if number_of(graph, v) is None]
            return all(shape == squeezed for shape in shapes)
        shapes = [graph.types[v].shape for v in node.inputs if graph.constant(v) is None]
        return all(shape is not None and _between(shape, whole) for shape in shapes)
    if node.op in RESHAPES:
        return whole not in (known.shape, graph.types[node.inputs[0]].shape)
    if node.op not in REDUCTIONS or graph.types[node.inputs[0]].shape != whole:
        return False
    axes = sorted(axis % len(whole) for axis in node.typed(AxesAttrs).axes)
    return tuple(axes) == channels.axes


def _between(shape: Shape, whole: Shape) -> bool:
    """Whether a shape is that of the whole tensor, with size 1 along some axes but the first."""
    if len(shape) != len(whole) or shape[0] != whole[0]:
        return False
    return all(size in (1, full) for size, full in zip(shape[1:], whole[1:], strict=True))


def _evaluated(
    graph: Graph, source: str, nodes: tuple[Node, ...], channels: _Channels, x: Float64
) -> Float64:
    """The last of `nodes` on tensors x [tensors, ...]; reduced axes have size 1.

    Sums are means times the number of elements, so that x may be short along them.
    """
    values: dict[str, Array] = {source: x}
    with np.errstate(all="ignore"):
        for node in nodes:
            inputs = [
                values[v] if v in values else _known(channels.constant(graph, v))
                for v in node.inputs
            ]
            if node.op in REDUCTIONS:
                made = REDUCTIONS[node.op](inputs[0], axis=channels.axes, keepdims=True)
                made = made * channels.count if node.op == "sum" else made
            elif node.op in RESHAPES:
                made = inputs[0]
            else:
                op = "add" if node.op == "bias_add" else node.op
                made = evaluated(op, node.attrs, inputs)
            values[node.name] = made if made.dtype == bool else np.asarray(made, np.float64)
    return np.broadcast_to(values[nodes[-1].name], x.shape)


def _known(constant: Array | None) -> Array:
    assert constant is not None
    return constant


def _varied(graph: Graph, nodes: tuple[Node, ...], channels: _Channels) -> frozenset[int]:
    """Axes along which parameters vary."""
    found = set[int]()
    for value in {v for node in nodes for v in node.inputs}:
        constant = channels.constant(graph, value)
        if constant is not None:
            found.update(axis for axis, size in enumerate(constant.shape) if size > 1)
    return frozenset(found)


def _sizes(varied: frozenset[int], channels: _Channels) -> list[int]:
    """Sizes for evaluation: short along axes where no parameter varies."""
    whole = {*varied, *(channels.axes if len(channels.axes) == 1 else ())}
    sizes = enumerate(channels.whole)
    return [size or 0 if axis in whole else min(size or SHORT, SHORT) for axis, size in sizes][1:]


def _fitted(
    graph: Graph, source: str, nodes: tuple[Node, ...], channels: _Channels
) -> ChannelNorm | None:
    rng, varied = np.random.default_rng(0), _varied(graph, nodes, channels)
    sizes = _sizes(varied, channels)
    row = rng.normal(size=sizes) + 0.5
    ones = (1,) * len(sizes)
    tried = rng.normal(size=(len(SCALES), *sizes)) + rng.normal(size=(len(SCALES), *ones))
    tried = SCALES.reshape(-1, *ones) * tried
    rows = np.concatenate([np.stack([0 * row, NARROW * row, WIDE * row]), tried])
    beta, narrow, wide, *found = _evaluated(graph, source, nodes, channels, rows)
    if not all(np.isfinite(each).all() for each in (beta, narrow, wide, *found)):
        return None
    numbers = [n for node in nodes for v in node.inputs if (n := number_of(graph, v)) is not None]
    for centred in (True, False):
        results = (beta, narrow - beta, wide - beta)
        made = _solved((source, channels), centred, row, results, numbers)
        if made is not None:
            expected = _norm(made, tried)
            tolerance = CLOSE * np.abs(expected).max()
            if np.all(np.abs(np.asarray(found) - expected) <= tolerance):
                return _compact(made, varied)
    return None


def _solved(
    place: tuple[str, _Channels],
    centred: bool,
    row: Float64,
    results: tuple[Float64, Float64, Float64],
    numbers: list[float],
) -> ChannelNorm | None:
    """Gamma and epsilon from the results for one tensor at two scales, without beta."""
    (source, channels), (beta, narrow, wide) = place, results
    over = tuple(axis - 1 for axis in channels.axes)
    deviation = row - row.mean(axis=over, keepdims=True) if centred else row
    variance = np.broadcast_to((deviation**2).mean(axis=over, keepdims=True), row.shape)
    at = np.unravel_index(np.abs(wide).argmax(), wide.shape)
    if wide[at] == 0 or variance[at] == 0:
        return None
    ratio = (narrow[at] / wide[at] * WIDE / NARROW) ** -2.0 if narrow[at] else np.inf
    # ratio = (NARROW^2 v + epsilon) / (WIDE^2 v + epsilon)
    if ratio == 1:
        return None
    epsilon = float(variance[at] * (ratio * WIDE**2 - NARROW**2) / (1 - ratio))
    small = [n / channels.count for n in numbers if 0 < n < NARROW]
    if abs(ratio - (NARROW / WIDE) ** 2) < CLOSE * (NARROW / WIDE) ** 2 and small:
        epsilon = min(small)  # the smallest square of a norm, from which it is a quotient
    epsilon = next((n for n in numbers if abs(n - epsilon) <= 1e-5 * abs(epsilon)), epsilon)
    if not 0 < epsilon < MAX_EPSILON:  # with a larger one, any difference would be a norm
        return None
    gamma = wide * np.sqrt(WIDE**2 * variance + epsilon) / (WIDE * deviation)
    return ChannelNorm(source, channels.axes, centred, gamma[None], beta[None], epsilon)


def _norm(norm: ChannelNorm, x: Float64) -> Float64:
    deviation = x - x.mean(axis=norm.axes, keepdims=True) if norm.centred else x
    variance = (deviation**2).mean(axis=norm.axes, keepdims=True)
    result: Float64 = norm.gamma * deviation / np.sqrt(variance + norm.epsilon) + norm.beta
    return result


def _compact(norm: ChannelNorm, varied: frozenset[int]) -> ChannelNorm:
    """The same with parameters of size 1 along axes where they do not vary."""

    def compact(values: Float64) -> Float64:
        return values[tuple(slice(None if a in varied else 1) for a in range(values.ndim))]

    return replace(norm, gamma=compact(norm.gamma), beta=compact(norm.beta))
