"""Samples invented from batch-norm statistics, for networks without calibration data.

Inputs are noise whose mean, deviation and spectrum fit what the first batch norm saw. On the way
through the network each value that a batch norm knows is brought to the mean and deviation of
its channels, so that every layer meets numbers like those of training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qgraph.errors import CalibrationError, UsageError
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array, Moments
from qgraph.parallel import over_chunks
from qgraph.quant.data import chunk_inputs
from qgraph.quant.moments import LINEAR, channel_moments, moments_of
from qgraph.quant.paired import Run
from qgraph.quant.topology import COMPUTE, is_nonnegative
from qgraph.rewrite.constants import Float64

SAMPLES = 64
NO_DATA = (
    "no data: thresholds from batch-norm statistics; nearness to the float network was not measured"
)
# What inputs usually lie in, if their mean and deviation fit: (0.47, 0.25) as in photographs.
USUAL_RANGES = ((0.0, 255.0), (0.0, 1.0), (-1.0, 1.0))
TYPICAL = (0.47, 0.25)
FARTHEST = 0.25
DEVIATIONS = 2.5  # where other inputs end
WIDEST = 256  # input channels whose means are worth a fit

Range = tuple[float, float]


@dataclass(frozen=True)
class InputFacts:
    """What is known of an input without data: `moments` per channel, `range`, and whence."""

    moments: Moments
    spectrum: Float64
    range: Range
    source: str

    def __str__(self) -> str:
        low, high = self.range
        return f"within {low:.4g} to {high:.4g} ({self.source})"


@dataclass(frozen=True)
class Invented:
    """Samples by input name, what is said of each input, and what a person should be told."""

    data: Mapping[str, Array]
    inputs: Mapping[str, str]
    notes: tuple[str, ...]


def invent(graph: Graph, ranges: Mapping[str, Range], samples: int = SAMPLES) -> Invented:
    """Noise for each input of a folded float graph, [samples, ...], the same on every call.

    `ranges`: what the user knows, by input name; the name `` stands for the only input. Raises
    CalibrationError where neither that nor a batch norm says anything of an input.
    """
    facts = input_facts(graph, ranges)
    data = {name: _noise(graph, name, known, samples) for name, known in facts.items()}
    notes = [f"input `{name}`: taken to lie {known}" for name, known in facts.items()]
    if not has_statistics(graph):
        notes.append("there are no batch norms either: thresholds come from noise at the inputs")
    return Invented(data, {name: str(known) for name, known in facts.items()}, tuple(notes))


def has_statistics(graph: Graph) -> bool:
    """True where batch norms left statistics in a folded graph."""
    return any(value in graph.types for value in graph.moments)


def input_facts(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, InputFacts]:
    """Mean, deviation, spectrum and range of each input, as for `invent`."""
    only = {"": graph.inputs[0]} if len(graph.inputs) == 1 else {}
    given = {only.get(name, name): check_range(name, ends) for name, ends in ranges.items()}
    unknown = [name for name in given if name not in graph.inputs]
    if unknown:
        raise UsageError(
            f"there is no input `{unknown[0]}` to give a range of", hint=f"inputs: {graph.inputs}"
        )
    if not graph.inputs:
        raise CalibrationError("the network has no inputs: there is nothing to calibrate")
    if not has_statistics(graph) and len(given) < len(graph.inputs):
        raise CalibrationError(
            "there is no calibration data, and no batch norm to take statistics from",
            hint="give a few dozen typical inputs: --calibration FILE.npz",
        )
    return {name: _facts_of(graph, name, given.get(name)) for name in graph.inputs}


def check_range(name: str, ends: Range) -> Range:
    """The same range. Raises UsageError where it is none."""
    low, high = ends
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise UsageError(
            f"`{low:g},{high:g}` is not a range{f' of `{name}`' * bool(name)}",
            hint="like --input-range 0,255",
        )
    return ends


def _noise(graph: Graph, name: str, known: InputFacts, samples: int) -> Array:
    kind, rng = graph.types[name], np.random.default_rng(0)
    batch = (kind.shape or (1,))[0] or 1
    count = -(-samples // batch) * batch
    parts = zip(known.spectrum, _fields(graph, name, count, rng), strict=True)
    noise = sum(np.sqrt(share) * field for share, field in parts)
    x = np.clip(noise * known.moments.deviation + known.moments.mean, *known.range)
    whole = np.dtype(kind.dtype).kind in "iu"
    return np.asarray(np.rint(x) if whole else x).astype(kind.dtype)


# -- inputs ---------------------------------------------------------------------------------


def _facts_of(graph: Graph, name: str, given: Range | None) -> InputFacts:
    shape = graph.types[name].shape
    if shape is None or None in shape[1:]:
        raise CalibrationError(
            "its shape is not known: no samples can be made", node=f"input {name}",
            hint=f"give it: --input-shape {name}=...",
        )  # fmt: skip
    count = len(_scales(shape)) * 2
    fitted = _fitted(graph, name)
    if given is not None:
        return _within(given, fitted, int(shape[-1] or 1) if len(shape) > 1 else 1, count)
    if fitted is None:
        raise CalibrationError(
            "its range is not known: no batch norm follows its first layer",
            node=f"input {name}",
            hint="give it, like --input-range 0,255; or give data: --calibration FILE.npz",
        )
    moments, spectrum = fitted
    return InputFacts(moments, spectrum, *_range_of(moments))


def _within(
    given: Range, fitted: tuple[Moments, Float64] | None, channels: int, scales: int
) -> InputFacts:
    """By the statistics, unless these contradict the range that the user gave."""
    (low, high), source = given, "as given"
    if fitted is not None:
        asked = float(fitted[0].mean.mean())
        if low <= asked <= high:
            return InputFacts(*fitted, given, source)
        source += f", though the first batch norm asks for a mean of {asked:.3g}"
    middle, spread = np.full(channels, (low + high) / 2), np.full(channels, (high - low) / 4)
    return InputFacts(Moments(middle, spread), np.full(scales, 1 / scales), given, source)


def _range_of(moments: Moments) -> tuple[Range, str]:
    mean, deviation = float(moments.mean.mean()), float(moments.deviation.mean())

    def distance(ends: Range) -> float:
        low, width = ends[0], ends[1] - ends[0]
        place = (mean - low) / width - TYPICAL[0], deviation / width - TYPICAL[1]
        return float(np.hypot(*place))

    nearest = min(USUAL_RANGES, key=distance)
    said = f"the first batch norm asks for a mean of {mean:.3g} and a deviation of {deviation:.3g}"
    if distance(nearest) <= FARTHEST:
        return nearest, f"taken for usual: {said}"
    least = float((moments.mean - DEVIATIONS * moments.deviation).min())
    most = float((moments.mean + DEVIATIONS * moments.deviation).max())
    return (least, most), f"mean and {DEVIATIONS} deviations: {said}"


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


def _fitted(graph: Graph, name: str) -> tuple[Moments, Float64] | None:
    """Mean and deviation of an input, and its spectrum, from the first statistics behind it."""
    first, kind = _first_known(graph, name), graph.types[name]
    if first is None or kind.shape is None or len(kind.shape) < 2:
        return None
    value, known = first
    channels = int(kind.shape[-1] or 1)

    def response(x: Any) -> Float64:
        step = kind.shape[0] or 1 if kind.shape else 1
        parts = []
        for i in range(0, len(x), step):
            part = np.resize(x[i : i + step], (step, *x.shape[1:])).astype(kind.dtype)
            made = evaluate(graph, {name: part}, [value])[value][: len(x) - i]
            parts.append(made.astype(np.float64))
        return np.concatenate(parts)

    # Of a channel that is seldom above 0, the statistics behind its ReLU say next to nothing.
    certain = known.deviation > 0
    if value not in graph.moments:
        certain &= known.mean > -known.deviation / 2
    if not certain.any():
        return None
    around = tuple(range(1, len(kind.shape) - 1))
    sizes = tuple(int(d) for d in kind.shape[1:] if d is not None)
    zero = response(np.zeros((1, *sizes)))
    mean = np.zeros(channels)
    if channels <= WIDEST:
        basis = np.broadcast_to(
            np.eye(channels).reshape(channels, *[1] * len(around), channels), (channels, *sizes)
        )
        slopes = (response(basis) - zero).mean(axis=around)
        weights = certain / np.maximum(known.deviation, 0.1 * np.median(known.deviation[certain]))
        offset = zero.mean(axis=tuple(range(zero.ndim - 1)))
        mean = np.linalg.lstsq(
            (slopes * weights).T, (known.mean - offset) * weights, rcond=1e-3
        )[0]  # fmt: skip
    rng = np.random.default_rng(1)
    powers = np.array(
        [
            (response(field) - zero).var(axis=tuple(range(zero.ndim - 1)))
            for field in _fields(graph, name, 8, rng)
        ]
    )
    shares = _shares(powers, np.where(certain, known.deviation, 0) ** 2)
    total = float(shares.sum())
    if not total > 0:
        return None
    return Moments(mean, np.full(channels, np.sqrt(total))), shares / total


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


def _scales(shape: Any) -> list[int]:
    """Sizes of the blocks that noise fields are made of, in positions."""
    largest = max((int(d) for d in shape[1:-1]), default=1)
    return [1 << i for i in range(largest.bit_length())]


def _fields(graph: Graph, name: str, count: int, rng: Any) -> Iterator[Array]:
    """Noise of deviation 1 in blocks of each scale, [count, ...]; grey, then each channel alone."""
    shape = graph.types[name].shape or ()
    sizes, channels = [int(d or 1) for d in shape[1:-1]], int(shape[-1] or 1)
    for grey in (True, False):
        for block in _scales(shape):
            coarse = [-(-size // block) + 1 for size in sizes]
            field = rng.standard_normal((count, *coarse, 1 if grey else channels))
            for axis, size in enumerate(sizes, start=1):
                start = int(rng.integers(block))
                field = np.repeat(field, block, axis=axis)
                field = np.take(field, range(start, start + size), axis=axis)
            yield np.broadcast_to(field, (count, *sizes, channels)).astype(np.float32)


# -- the way through ------------------------------------------------------------------------


@contextmanager
def matched(graph: Graph, floating: Graph, data: Mapping[str, Array]) -> Iterator[None]:
    """Within, both graphs bring known values to their statistics; after it they are as before.

    The factors are those that the float graph needs on `data`, so that errors of the quantized
    graph stay errors. Inside, calibration and corrections work as on real samples.
    """
    needed = _needed(floating, data)
    inserted = [_insert(g, value, norm) for g in (graph, floating) for value, norm in needed.items()
                if value in g.nodes]  # fmt: skip
    try:
        yield
    finally:
        for undo in reversed(inserted):
            undo()


@dataclass(frozen=True)
class _Norm:
    """`(x - found) * scale + wanted`, per channel."""

    found: Float64
    scale: Float64
    wanted: Float64


def _needed(floating: Graph, data: Mapping[str, Array]) -> dict[str, _Norm]:
    chunks = chunk_inputs(floating, data)
    never_negative = is_nonnegative(floating)
    needed: dict[str, _Norm] = {}
    with over_chunks(max((len(c) for c in chunks.values()), default=0)) as each:
        run = Run(floating, chunks, each)
        for node in floating.topological():
            run.step(node.name)
            known = moments_of(floating, node.name)
            matchable = node.op not in ("input", "const", "relu", *COMPUTE)
            if known is not None and matchable and node.name in run.values:
                norm = _norm(run.values[node.name], known, never_negative(node.name))
                needed[node.name] = norm
                changed = [
                    ((x - norm.found) * norm.scale + norm.wanted).astype(x.dtype)
                    for x in run.values[node.name]
                ]
                run.values.add(node.name, changed)
            run.release(node.name)
    return needed


def _norm(chunks: Sequence[Array], known: Moments, keep_zero: bool) -> _Norm:
    found = channel_moments(chunks)
    mean, deviation = found.mean, found.deviation
    with np.errstate(divide="ignore", invalid="ignore"):
        if keep_zero:  # a shift would make it negative
            scale = np.where(mean > 0, np.maximum(known.mean, 0) / mean, 0)
            return _Norm(np.zeros_like(mean), scale, np.zeros_like(mean))
        scale = np.where(deviation > 1e-6 * np.abs(mean), known.deviation / deviation, 0)
    return _Norm(mean, scale, known.mean)


def _insert(graph: Graph, value: str, norm: _Norm) -> Any:
    """Put `norm` behind `value`, as a batch norm; returns what takes it out again."""
    users, dtype = graph.users(value), graph.types[value].dtype
    publics = [public for public, v in graph.outputs.items() if v == value]
    vectors = (norm.scale, norm.wanted, norm.found, np.ones_like(norm.scale))
    constants = [
        graph.const(v.astype(dtype), f"{value}/matched/{i}") for i, v in enumerate(vectors)
    ]
    made = graph.add(
        "batch_norm", value, *constants, name=f"{value}/matched", attrs={"epsilon": 0.0}
    )

    def swap(names: list[str], old: str, new: str) -> None:
        for name in names:
            node = graph.nodes[name]
            graph.replace(replace(node, inputs=tuple(new if v == old else v for v in node.inputs)))
        graph.outputs.update(dict.fromkeys(publics, new))

    def undo() -> None:
        swap([user.name for user in graph.users(made)], made, value)
        graph.remove(made)
        for constant in constants:
            graph.remove(constant)

    swap([user.name for user in users], value, made)
    return undo
