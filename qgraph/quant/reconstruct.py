"""Weights rounded so that a layer's output is near, not each weight (AdaRound's aim).

Codes are chosen against the float layer's own output, on inputs as the quantized network has them,
so that a layer also makes up for errors before it. A finer scale than calibration's is taken where
that is nearer: few bits serve most weights better if the largest are clipped.

Samples are few, and may be of another kind than what the network will meet: what is quiet in them
would leave weights free. So inputs that batch norms remember count too, beside those seen: channels
on their own, each with the mean and deviation of training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.linear import COMPUTE, ConvAttrs
from qgraph.ir.ops.windows import padded, taps
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, Moments, QuantSpec, Role
from qgraph.numerics import MAX_EXPONENT, ROUND, frozen_exponent
from qgraph.parallel import Each
from qgraph.progress import Steps, silent_steps
from qgraph.quant.moments import known_moments
from qgraph.quant.paired import PairedLayer, quantized_constant_of, run_paired, set_constant
from qgraph.quant.rounding import Reals, descend, round_in_turn

# Output positions that are looked at; 8,192 tell a layer of 1,024 inputs from noise.
SAMPLES = 8192
# Numbers in the input columns of a layer (128 MiB in float32), and inputs solved for at once.
LARGEST = 1 << 25
BLOCK = 4096
# Pull towards the float weights, as a share of the mean squared input.
RIDGE = 0.01
# What batch norms remember counts as so many times the samples.
REMEMBERED = 0.3
# Powers of two by which the scale of weights may become finer.
FINER = 2
# One image in so many chooses between rounding to nearest and what the others say.
HELD_OUT = 4
Rows = Array | slice  # of samples


@dataclass(frozen=True)
class Reconstruction:
    """A layer's output error, rms relative to the float output's, on images held out.

    `before` is with weights to nearest; `channels` is the share of output channels that changed,
    `finer` by how many powers of two the scale did.
    """

    layer: str
    before: float
    after: float
    channels: float
    finer: int = 0


def reconstruct_weights(
    graph: Graph,
    floating: Graph,
    data: Mapping[str, Array],
    samples: int = SAMPLES,
    finer: int = FINER,
    on_node: Steps = silent_steps,
) -> list[Reconstruction]:
    """Choose the weight codes of `graph` again, in place, one entry per layer.

    graph: calibrated. `samples`: output positions looked at, fewer for very wide layers. An
    output channel keeps its rounding to nearest unless the new one has less error both on the
    positions used and on those held out, each with what batch norms remember. `finer`: so many
    finer scales are tried too, which clip the largest weights; not where a bias follows the scale.
    Weights that several layers share stay shared, rounded to nearest.
    To be done before bounds on accumulators are worked out.
    """
    done: list[Reconstruction] = []

    def visit(layer: PairedLayer, each: Each) -> None:
        held = quantized_constant_of(graph, layer.node) if layer.node.op in COMPUTE else None
        if held is None or spec_of(held[0]).role != Role.WEIGHT:
            return
        quantizer, w = held
        if graph.use_count(quantizer.name) > 1 or graph.use_count(quantizer.inputs[0]) > 1:
            return
        spec = spec_of(quantizer)
        x = floating.nodes[layer.node.name].inputs[0]
        problem = _Problem.of(layer, w, samples, known_moments(floating, x), each)
        most = min(finer, MAX_EXPONENT - int(np.max(np.asarray(spec.exponent))))
        specs = [_finer(spec, i) for i in range((most if _has_stage(graph, layer.node) else 0) + 1)]
        choices = [problem.solve(s, each) for s in specs]
        plain = problem.nearest(spec)
        allowed = [i for i, c in enumerate(choices) if c.used.sum() <= plain.used.sum()]
        best = min(allowed, key=lambda i: float(choices[i].judged.sum()))
        chosen = choices[best].weights
        value = chosen.transpose(1, 0, 2).reshape(w.shape).astype(w.dtype)
        set_constant(graph, layer.node.name, value, specs[best])
        before, after = (problem.relative(c) for c in (plain, choices[best]))
        changed = float((chosen != plain.weights).any(axis=1).mean())
        done.append(Reconstruction(layer.node.name, before, after, changed, best))

    run_paired(graph, floating, data, visit, on_node)
    return done


def _finer(spec: QuantSpec, steps: int) -> QuantSpec:
    return spec.with_exponent(frozen_exponent(np.asarray(spec.exponent) + steps))


def _has_stage(graph: Graph, layer: Node) -> bool:
    """True where the sum is requantized at once: no bias is on its scale."""
    users = graph.users(layer.name)
    return all(u.op == "quantize" for u in users) and not graph.is_output(layer.name)


@dataclass(frozen=True)
class _Choice:
    """Weights on a grid, [groups, k, n], and their squared errors, [groups, n].

    What inputs that are only remembered would add is in the errors.
    """

    weights: Reals
    used: Reals
    judged: Reals


@dataclass(frozen=True)
class _Problem:
    """A layer as `groups` products `x [rows, k] @ w [k, n]`, with its float outputs y.

    x [groups, rows, k], y [groups, rows, n], w [groups, k, n]; `used` and `judged` are rows.
    `known`: [groups, k], of x in training; None where unknown.
    """

    x: Array
    y: Array
    w: Array
    used: Rows
    judged: Rows
    known: Moments | None

    @staticmethod
    def of(
        layer: PairedLayer, w: Array, samples: int, known: Moments | None, each: Each
    ) -> _Problem:
        node, groups, channels = layer.node, _groups(layer, w), layer.wanted[0].shape[-1]
        # Depthwise weights are [h, w, group, n], others [h, w, k, group * n].
        split = w.reshape(-1, groups, channels // groups).transpose(1, 0, 2)
        most = max(1, min(samples, LARGEST // (groups * split.shape[1])))
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
        both = held.any() and not held.all()
        return _Problem(
            np.ascontiguousarray(x).reshape(groups, count, -1),
            y.reshape(count, groups, -1).transpose(1, 0, 2),
            np.ascontiguousarray(split),
            ~held if both else slice(None),
            held if both else slice(None),
            None if known is None else _at_taps(known, groups, split.shape[1]),
        )

    def relative(self, choice: _Choice) -> float:
        power = float((self.y[:, self.judged].astype(np.float64) ** 2).sum())
        error = float(self._seen(choice.weights, self.judged).sum())
        return float(np.sqrt(error / (power or 1.0)))

    def nearest(self, spec: QuantSpec) -> _Choice:
        """Weights as the quantizer makes them."""
        return self._choice(self._codes(spec) * self._unit(spec))

    def solve(self, spec: QuantSpec, each: Each) -> _Choice:
        """The better of rounding to nearest and rounding for the output, for each channel."""
        plain, rounded = self.nearest(spec), self._choice(self._rounded(spec, each))
        better = (rounded.used < plain.used) & (rounded.judged < plain.judged)
        return _Choice(
            np.where(better[:, None], rounded.weights, plain.weights),
            np.where(better, rounded.used, plain.used),
            np.where(better, rounded.judged, plain.judged),
        )

    def _unit(self, spec: QuantSpec) -> Reals:
        """The value of one step, [groups, 1, n]."""
        groups, _, n = self.w.shape
        unit: Reals = np.ldexp(np.ones(groups * n), -np.asarray(spec.exponent))
        return unit.reshape(groups, 1, n)

    def _codes(self, spec: QuantSpec) -> Reals:
        steps = ROUND[spec.rounding](self.w / self._unit(spec))
        codes: Reals = np.clip(steps, spec.lo, spec.hi)
        return codes

    def _choice(self, weights: Reals) -> _Choice:
        return _Choice(
            weights, self._errors(weights, self.used), self._errors(weights, self.judged)
        )

    def _errors(self, weights: Reals, rows: Rows) -> Reals:
        seen = self._seen(weights, rows)
        if self.known is None:
            return seen
        off = weights - self.w
        mean = np.einsum("gk,gkn->gn", self.known.mean, off)
        error = mean**2 + np.einsum("gk,gkn->gn", self.known.deviation**2, off**2)
        return np.asarray(seen + REMEMBERED * self.x[:, rows].shape[1] * error)

    def _seen(self, weights: Reals, rows: Rows) -> Reals:
        off = _product(self.x[:, rows], weights) - self.y[:, rows]
        error: Reals = np.einsum("grn,grn->gn", off, off)
        return error

    def _rounded(self, spec: QuantSpec, each: Each) -> Reals:
        """Weights for the output; blocks of inputs in turn, the others as they are by then."""
        unit = self._unit(spec)
        steps = self.w / unit
        x, codes = self.x[:, self.used], steps.copy()
        count = codes.shape[1]
        rest = self.y[:, self.used] / unit - _product(x, codes)
        for rows in (slice(i, min(i + BLOCK, count)) for i in range(0, count, BLOCK)):
            hessian, cross = _moments(x[:, :, rows], rest, each)
            size = np.trace(hessian, axis1=1, axis2=2) / hessian.shape[1]
            ridge = np.where(size > 0, RIDGE * size, 1.0)
            hessian += ridge[:, None, None] * np.eye(hessian.shape[1])
            if self.known is not None:
                hessian += REMEMBERED * x.shape[1] * _second_moments(self.known, rows)
            target = steps[:, rows] + np.linalg.solve(hessian, cross)
            rounded = round_in_turn(target, hessian, spec.lo, spec.hi)
            codes[:, rows] = descend(rounded, target, hessian, spec.lo, spec.hi)
            if count > BLOCK:
                rest -= _product(x[:, :, rows], codes[:, rows] - steps[:, rows])
        return codes * unit


def _at_taps(known: Moments, groups: int, inputs: int) -> Moments:
    """Moments of channels -> of each of the `inputs` of a product, [groups, inputs]."""

    def spread(values: Reals) -> Reals:
        of_group = values.reshape(groups, -1)
        return np.tile(of_group, (1, inputs // of_group.shape[1]))

    return Moments(spread(known.mean), spread(known.deviation))


def _second_moments(known: Moments, rows: slice) -> Reals:
    """E[x x^T] of independent inputs, [groups, k, k]."""
    mean, deviation = known.mean[:, rows], known.deviation[:, rows]
    among: Reals = mean[:, :, None] * mean[:, None, :]
    return among + (deviation**2)[:, :, None] * np.eye(mean.shape[1])


def _groups(layer: PairedLayer, w: Array) -> int:
    """Products that a layer is made of: one for each group, or channel, of its input."""
    if layer.node.op == "matmul":
        return 1
    channels = layer.inputs[0].shape[-1]
    return int(channels if layer.node.op == "depthwise_conv2d" else channels // w.shape[2])


def _choose(positions: int, most: int, seed: int) -> Array:
    if positions <= most:
        return np.arange(positions)
    return np.sort(np.random.default_rng(seed).choice(positions, most, replace=False))


def _views(node: Node, x: Array, w: Array) -> Iterator[Array]:
    """The input of each tap of the filter, [..., channels] at every output position."""
    if node.op == "matmul":
        yield x
        return
    attrs, kernel = node.typed(ConvAttrs), (w.shape[0], w.shape[1])
    image = padded(x, attrs.pads(x.shape[1:3], kernel))
    for _, _, view in taps(image, kernel, attrs.strides, attrs.dilations):
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
