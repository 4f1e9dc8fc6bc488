"""Generate samples from batch-norm statistics, for networks without calibration data.

Inputs are noise (`noise.py`) with the mean, deviation and spectrum that fit the first batch norm
(`input_fit.py`). Inside the network, values are normalized to the statistics of the other batch
norms (`matching.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.errors import CalibrationError, UsageError
from qgraph.ir.graph import Graph
from qgraph.ir.ops import op_definition
from qgraph.ir.types import Array, Moments, Shape, TensorType
from qgraph.quant.thresholds import Range
from qgraph.quant.without_data.input_fit import Fit, fitted
from qgraph.quant.without_data.noise import fields_of, scales_of
from qgraph.rewrite.constants import Float64
from qgraph.rewrite.indices import without_sign

SAMPLES = 64
NO_DATA = (
    "no data: thresholds from batch-norm statistics; the distance from the float network was not "
    "measured"
)
# Usual ranges of inputs. One is chosen if its mean and deviation, as shares of the range, are at
# most MAX_DISTANCE from those of photographs.
USUAL_RANGES = ((0.0, 255.0), (0.0, 1.0), (-1.0, 1.0))
PHOTOGRAPHS = (0.47, 0.25)
MAX_DISTANCE = 0.25
DEVIATIONS = 2.5  # from the mean to the ends of other ranges
AS_GIVEN = "as given"


@dataclass(frozen=True)
class GeneratedInput:
    """Properties of an input without data: `moments` per channel, `range`, and their source.

    `spectrum` is the share of its power in each noise field.
    """

    moments: Moments
    spectrum: Float64
    range: Range
    source: str

    def __str__(self) -> str:
        low, high = self.range
        return f"within {low:.4g} to {high:.4g} ({self.source})"


@dataclass(frozen=True)
class GeneratedSamples:
    """Samples by input name, a description of each input, and notes for the user."""

    data: Mapping[str, Array]
    inputs: Mapping[str, str]
    notes: tuple[str, ...]


def generate_samples(
    graph: Graph, ranges: Mapping[str, Range], samples: int = SAMPLES
) -> GeneratedSamples:
    """Noise for each input of a folded float graph, [samples, ...], the same in every call.

    ranges: known ranges by input name; the empty name stands for the only input. Raises
    CalibrationError if neither a range nor a batch norm describes an input.
    """
    facts = input_facts(graph, ranges)
    data = {name: _noise(graph.types[name], known, samples) for name, known in facts.items()}
    taken = {name: known for name, known in facts.items() if known.source != AS_GIVEN}
    notes = [f"input `{name}`: assumed to be {known}" for name, known in taken.items()]
    if not has_statistics(graph):
        notes.append(
            "the network has no batch norms either: thresholds come from noise at the inputs"
        )
    return GeneratedSamples(data, {name: str(known) for name, known in facts.items()}, tuple(notes))


def has_statistics(graph: Graph) -> bool:
    """Whether a folded graph has statistics of batch norms."""
    return any(value in graph.types for value in graph.moments)


def input_facts(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, GeneratedInput]:
    """Mean, deviation, spectrum and range of each input, as for `generate_samples`."""
    only = {"": graph.inputs[0]} if len(graph.inputs) == 1 else {}
    given = {only.get(name, name): check_range(name, ends) for name, ends in ranges.items()}
    given = {**index_ranges(graph), **given}
    unknown = [name for name in given if name not in graph.inputs]
    if unknown:
        raise UsageError(
            f"unknown input `{unknown[0]}` in input ranges", hint=f"inputs: {graph.inputs}"
        )
    if not graph.inputs:
        raise CalibrationError("the network has no inputs, so it cannot be calibrated")
    if not has_statistics(graph) and len(given) < len(graph.inputs):
        raise CalibrationError(
            "calibration data is missing, and the network has no batch norms to replace it",
            hint="give a few dozen typical inputs: --calibration FILE.npz",
        )
    return {name: _facts_of(graph, name, given.get(name)) for name in graph.inputs}


def index_ranges(graph: Graph) -> dict[str, Range]:
    """The range of each input that has indices of rows: those that all its tables have."""
    rows: dict[str, list[int]] = {}
    for node in graph.topological():
        shape = graph.types[node.inputs[0]].shape if node.op == "embedding" else None
        if shape and shape[0] is not None:
            rows.setdefault(_index_before(graph, node.inputs[1]), []).append(shape[0])
    fewest = {name: min(rows[name]) for name in graph.inputs if name in rows}
    return {name: (0.0, float(count - 1)) for name, count in fewest.items() if count > 1}


def _index_before(graph: Graph, value: str) -> str:
    """The value of which casts, moves and the sign of indices make an index."""
    before = ""
    while before != value:
        before, value = value, without_sign(graph, value)
        node = graph.producer(value)
        if len(node.inputs) == 1 and (node.op == "cast" or op_definition(node.op).moves):
            value = node.inputs[0]
    return value


def check_range(name: str, ends: Range) -> Range:
    """The same range. Raises UsageError if its ends are not finite or in the wrong order."""
    low, high = ends
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise UsageError(
            f"`{low:g},{high:g}` is not a range{f' of `{name}`' * bool(name)}",
            hint="like --input-range 0,255",
        )
    return ends


def _facts_of(graph: Graph, name: str, given: Range | None) -> GeneratedInput:
    shape = graph.types[name].shape
    if shape is None or None in shape[1:]:
        raise CalibrationError(
            "its shape is unknown, so no samples can be generated", node=f"input {name}",
            hint=f"give it: --input-shape {name}=...",
        )  # fmt: skip
    fit = fitted(graph, name)
    if given is not None:
        return _within(given, fit, shape)
    if fit is None:
        raise CalibrationError(
            "its range is unknown, because no batch norm follows its first layer",
            node=f"input {name}",
            hint="give it, like --input-range 0,255; or give data: --calibration FILE.npz",
        )
    return GeneratedInput(fit.moments, fit.spectrum, *_range_of(fit.moments))


def _within(given: Range, fit: Fit | None, shape: Shape) -> GeneratedInput:
    """The facts from statistics, unless these contradict the range that the user gave."""
    (low, high), source = given, AS_GIVEN
    if fit is not None:
        asked = float(fit.moments.mean.mean())
        if low <= asked <= high:
            return GeneratedInput(fit.moments, fit.spectrum, given, source)
        source += f", though the first batch norm asks for a mean of {asked:.3g}"
    channels, fields = int(shape[-1] or 1) if len(shape) > 1 else 1, 2 * len(scales_of(shape))
    middle, spread = np.full(channels, (low + high) / 2), np.full(channels, (high - low) / 4)
    return GeneratedInput(Moments(middle, spread), np.full(fields, 1 / fields), given, source)


def _range_of(moments: Moments) -> tuple[Range, str]:
    mean, deviation = float(moments.mean.mean()), float(moments.deviation.mean())

    def distance(ends: Range) -> float:
        low, width = ends[0], ends[1] - ends[0]
        place = (mean - low) / width - PHOTOGRAPHS[0], deviation / width - PHOTOGRAPHS[1]
        return float(np.hypot(*place))

    nearest = min(USUAL_RANGES, key=distance)
    wanted = (
        f"the first batch norm asks for a mean of {mean:.3g} and a deviation of {deviation:.3g}"
    )
    if distance(nearest) <= MAX_DISTANCE:
        return nearest, f"taken for usual: {wanted}"
    least = float((moments.mean - DEVIATIONS * moments.deviation).min())
    most = float((moments.mean + DEVIATIONS * moments.deviation).max())
    return (least, most), f"mean and {DEVIATIONS} deviations: {wanted}"


def _noise(kind: TensorType, known: GeneratedInput, samples: int) -> Array:
    shape, rng = kind.shape or (), np.random.default_rng(0)
    batch = (shape or (1,))[0] or 1
    count = -(-samples // batch) * batch
    parts = zip(known.spectrum, fields_of(shape, count, rng), strict=True)
    noise = sum(np.sqrt(share) * field for share, field in parts)
    x = np.clip(noise * known.moments.deviation + known.moments.mean, *known.range)
    whole = np.dtype(kind.dtype).kind in "iu"
    return np.asarray(np.rint(x) if whole else x).astype(kind.dtype)
