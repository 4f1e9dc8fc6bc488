"""Weights rounded so that a layer's output is near, not each weight (AdaRound's aim).

Scales stay as calibration chose them; codes are chosen against the float layer's own output, on
inputs as the quantized network has them, so that a layer also makes up for errors before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.windows import explicit_pads, padded, taps
from qgraph.ir.types import Array, QuantSpec
from qgraph.numerics import aligned, quantize
from qgraph.parallel import Each
from qgraph.quant.paired import Layer, quantized_constant_of, run_paired, set_constant
from qgraph.quant.rounding import Reals, descend, round_in_turn
from qgraph.quant.topology import COMPUTE

# Output positions that are looked at; 8,192 tell a layer of 1,024 inputs from noise.
SAMPLES = 8192
# Numbers in the input columns of a layer (128 MiB in float32), and inputs solved for at once.
LARGEST = 1 << 25
BLOCK = 4096
# Pull towards the float weights, as a share of the mean squared input.
RIDGE = 0.01
# One image in so many chooses between rounding to nearest and what the others say.
HELD_OUT = 4


@dataclass(frozen=True)
class Reconstruction:
    """A layer's output error, rms relative to the float output's, on images held out.

    `before` is with weights to nearest; `channels` is the share of output channels that changed.
    """

    layer: str
    before: float
    after: float
    channels: float


def reconstruct_weights(
    graph: Graph,
    floating: Graph,
    data: Mapping[str, Array],
    samples: int = SAMPLES,
    neighbours_only: bool = False,
    on_node: Callable[[int, int], None] = lambda done, total: None,
) -> list[Reconstruction]:
    """Choose the weight codes of `graph` anew, in place, one entry a layer.

    graph: calibrated. `samples`: output positions looked at, fewer for very wide layers. An
    output channel keeps its rounding to nearest unless the new one has less error both on the
    positions used and on those held out. `neighbours_only`: each code is the floor or the
    ceiling of its weight. To be done before bounds on accumulators are worked out.
    """
    done: list[Reconstruction] = []

    def visit(layer: Layer, each: Each) -> None:
        held = quantized_constant_of(graph, layer.node) if layer.node.op in COMPUTE else None
        if held is None or held[0].attrs["spec"].role != "weight":
            return
        spec: QuantSpec = held[0].attrs["spec"]
        problem = _Problem.of(layer, held[1], spec, samples, each)
        codes, result = problem.solve(layer.node.name, neighbours_only, each)
        done.append(result)
        value = problem.to_weights(codes, held[1])
        set_constant(graph, layer.node.name, value)

    run_paired(graph, floating, data, visit, on_node)
    return done


@dataclass(frozen=True)
class _Problem:
    """A layer as `groups` products `x [rows, k] @ w [k, n]`, weights in steps of their scale.

    x [groups, rows, k] float32; y [groups, rows, n], weights and plain [groups, k, n] float64;
    held [rows] marks rows that are held out.
    """

    node: Node
    spec: QuantSpec
    x: Array
    y: Reals
    weights: Reals
    plain: Reals
    held: Any

    @staticmethod
    def of(layer: Layer, w: Array, spec: QuantSpec, samples: int, each: Each) -> _Problem:
        node, groups, channels = layer.node, _groups(layer, w), layer.wanted[0].shape[-1]
        scaled = np.ldexp(w.astype(np.float64), aligned(spec.exponent, w.shape))
        plain = quantize(w, spec).codes.astype(np.float64)
        weights, codes = (_grouped(a, groups, channels) for a in (scaled, plain))
        most = max(1, min(samples, LARGEST // (groups * weights.shape[1])))
        share = -(-most // len(layer.inputs))
        images = [len(x) for x in layer.inputs]
        starts = np.cumsum([0, *images])

        def rows(i: int) -> tuple[Array, Array, Array]:
            found, y = layer.inputs[i], layer.wanted[i]
            chosen = _choose(y.size // y.shape[-1], share, i)
            where = np.unravel_index(chosen, y.shape[:-1])
            columns = np.stack([v[where] for v in _views(node, found, w)], axis=1)
            keys = (starts[i] + where[0]) if starts[-1] >= HELD_OUT else chosen
            return columns, y[where], keys % HELD_OUT == HELD_OUT - 1

        parts = [*each(rows, range(len(images)))]
        columns, y, held = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        count = len(columns)
        x = columns.reshape(count, columns.shape[1], groups, -1).transpose(2, 0, 1, 3)
        steps = np.ldexp(y.astype(np.float64), np.asarray(spec.exponent))
        return _Problem(
            node,
            spec,
            np.ascontiguousarray(x).reshape(groups, count, -1),
            steps.reshape(count, groups, -1).transpose(1, 0, 2),
            weights,
            codes,
            held,
        )

    def solve(self, name: str, neighbours_only: bool, each: Each) -> tuple[Reals, Reconstruction]:
        lo: Any = self.spec.lo
        hi: Any = self.spec.hi
        if neighbours_only:
            lo, hi = (np.clip(f(self.weights), lo, hi) for f in (np.floor, np.ceil))
        used = ~self.held if not self.held.all() else self.held
        judged = self.held if self.held.any() else used
        codes = self._codes(used, lo, hi, each)
        before, after = self._errors(self.plain, used), self._errors(codes, used)
        held_before, held_after = self._errors(self.plain, judged), self._errors(codes, judged)
        better = (after < before) & (held_after < held_before)
        chosen = np.where(better[:, None], codes, self.plain)
        unit = np.ldexp(np.ones(before.size), -2 * np.asarray(self.spec.exponent))
        unit = unit.reshape(before.shape)
        power = float((unit * (self.y[:, judged] ** 2).sum(axis=1)).sum()) or 1.0
        old, new = (
            float(np.sqrt((unit * e).sum() / power))
            for e in (held_before, np.where(better, held_after, held_before))
        )
        return chosen, Reconstruction(name, old, new, float(better.mean()))

    def _codes(self, used: Any, lo: Any, hi: Any, each: Each) -> Reals:
        """Blocks of inputs in turn, the others as they are by then."""
        x, codes = self.x[:, used], self.weights.copy()
        count = codes.shape[1]
        rest = self.y[:, used] - _product(x, codes)
        for rows in (slice(i, min(i + BLOCK, count)) for i in range(0, count, BLOCK)):
            weights = self.weights[:, rows]
            low, high = (np.broadcast_to(a, codes.shape)[:, rows] for a in (lo, hi))
            hessian, cross = _moments(x[:, :, rows], rest, each)
            size = np.trace(hessian, axis1=1, axis2=2) / hessian.shape[1]
            ridge = np.where(size > 0, RIDGE * size, 1.0)
            hessian += ridge[:, None, None] * np.eye(hessian.shape[1])
            target = weights + np.linalg.solve(hessian, cross)
            rounded = round_in_turn(target, hessian, low, high)
            codes[:, rows] = descend(rounded, target, hessian, low, high)
            if count > BLOCK:
                rest -= _product(x[:, :, rows], codes[:, rows] - weights)
        return codes

    def _errors(self, codes: Reals, rows: Any) -> Reals:
        """Squared error on `rows`, summed: [groups, n]."""
        off = _product(self.x[:, rows], codes) - self.y[:, rows]
        error: Reals = np.einsum("grn,grn->gn", off, off)
        return error

    def to_weights(self, codes: Reals, w: Array) -> Array:
        """The exact values of codes, in the layout and dtype of `w`."""
        whole = codes.transpose(1, 0, 2).reshape(w.shape)
        value: Array = np.ldexp(whole, -aligned(self.spec.exponent, w.shape)).astype(w.dtype)
        return value


def _groups(layer: Layer, w: Array) -> int:
    """Products that a layer is made of: one for each group, or channel, of its input."""
    if layer.node.op == "matmul":
        return 1
    channels = layer.inputs[0].shape[-1]
    return int(channels if layer.node.op == "depthwise_conv2d" else channels // w.shape[2])


def _grouped(w: Reals, groups: int, channels: int) -> Reals:
    """Weights as [groups, k, n]: depthwise [h, w, group, n], others [h, w, k, group * n]."""
    split = w.reshape(-1, groups, channels // groups)
    return np.ascontiguousarray(split.transpose(1, 0, 2))


def _choose(positions: int, most: int, seed: int) -> Any:
    if positions <= most:
        return np.arange(positions)
    return np.sort(np.random.default_rng(seed).choice(positions, most, replace=False))


def _views(node: Node, x: Array, w: Array) -> Iterator[Array]:
    """What each tap of the filter sees, [..., channels] at every output position."""
    if node.op == "matmul":
        yield x
        return
    window = (w.shape[:2], node.attrs["strides"], node.attrs["dilations"])
    pads = explicit_pads(x.shape[1:3], *window, node.attrs["padding"])
    for _, _, view in taps(padded(x, pads), *window):
        yield view


def _product(x: Array, w: Reals) -> Reals:
    """`x @ w` in float64, a thousand rows at a time: x is long, and float32."""
    parts = [x[:, i : i + 1024].astype(np.float64) @ w for i in range(0, x.shape[1], 1024)]
    return np.concatenate(parts, axis=1)


def _moments(x: Array, rest: Reals, each: Each) -> tuple[Reals, Reals]:
    """`x^T x` [groups, k, k] and `x^T rest` [groups, k, n]."""

    def part(rows: slice) -> tuple[Reals, Reals]:
        some = x[:, rows].astype(np.float64)
        turned = np.swapaxes(some, 1, 2)
        return turned @ some, turned @ rest[:, rows]

    size = max(1024, -(-x.shape[1] // 8))
    parts = [*each(part, [slice(i, i + size) for i in range(0, x.shape[1], size)])]
    hessians, crosses = zip(*parts, strict=True)
    return sum(hessians[1:], hessians[0]), sum(crosses[1:], crosses[0])
