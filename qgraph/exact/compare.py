"""Distance of quantized tensors from those of the float network: SQNR and clipped values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qgraph import kernels
from qgraph.exact.statistics import Statistics, decibel, joined, past_ends, statistics_of
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, Role
from qgraph.parallel import over_chunks
from qgraph.quant.graph_run import GraphRun
from qgraph.quant.samples.data import chunk_at, chunk_count, chunk_inputs
from qgraph.quant.thresholds import Range
from qgraph.quant.topology import QUANTIZERS


@dataclass(frozen=True)
class Measured:
    """Measurements on `samples` samples: by quantizer SQNR in dB and statistics, by output SQNR.

    The signal is the float network's tensor, the noise is the difference in the quantized network,
    with the errors of all earlier layers. SQNR is infinite without noise. `clipped` is the share of
    values in the quantized network that a quantizer changes by more than a step.
    """

    samples: int
    sqnr: Mapping[str, float]
    outputs: Mapping[str, float]
    statistics: Mapping[str, Statistics]
    clipped: Mapping[str, float] = field(default_factory=dict)


def measure(quantized: Graph, floating: Graph, data: Mapping[str, Array]) -> Measured:
    """Run both networks over the samples of `data` and compare them, quantizer by quantizer.

    Indices and masks are exact, and are left out: a mask saturates at 1.
    """
    quantizers = [n for n in quantized.topological() if n.op in QUANTIZERS]
    specs = {n.name: spec for n in quantizers if (spec := spec_of(n)).role != Role.INDEX}
    quantizers = [n for n in quantizers if n.name in specs]
    pairs = {name: original(quantized, name) for name in specs}
    constants = {name: quantized.constant(value) for name, value in pairs.items()}
    pairs = {name: value for name, value in pairs.items() if value in floating.types}
    outputs = {
        public: (value, quantized.outputs[public])
        for public, value in floating.outputs.items()
        if floating.types[value].is_float
    }
    ways_in = {
        n.name: n.inputs[0] for n in quantizers if n.op == "quantize" and constants[n.name] is None
    }
    chunks = chunk_inputs(quantized, data)
    count = chunk_count(chunks)
    of_floating = GraphRun(floating, [*pairs.values(), *(a for a, _ in outputs.values())])
    of_quantized = GraphRun(
        quantized, (), {*pairs, *ways_in.values(), *(b for _, b in outputs.values())}
    )
    clipping, leaving = (
        _names_by_value(ways_in),
        _names_by_value({p: b for p, (_, b) in outputs.items()}),
    )

    def at(i: int) -> MeasuredChunk:
        """Compare values of the quantized network when they are computed; none is stored."""
        feeds = chunk_at(chunks, i)
        wanted, part = of_floating(feeds), MeasuredChunk()

        def look(value: str, x: Array, _: Range | None = None) -> None:
            if value in pairs:
                part.powers[value] = _powers(wanted[pairs[value]], x)
            for public in leaving.get(value, ()):
                part.outputs[public] = _powers(wanted[outputs[public][0]], x)
            for name in clipping.get(value, ()):
                part.clips[name] = sum(past_ends(x, specs[name])), x.size

        of_quantized(feeds, look)
        for name in pairs:
            if constants[name] is None:
                part.statistics[name] = statistics_of(wanted[pairs[name]], specs[name])
        if i == 0:  # constants are the same in all chunks
            for name, x in of_quantized.constants.items():
                look(name, x)
        return part

    with over_chunks(count) as each:
        parts = [*each(at, range(count))]
    statistics = {
        name: [part.statistics.get(name) for part in parts]
        if constant is None
        else [statistics_of(constant, specs[name])]
        for name, constant in constants.items()
    }
    return Measured(
        len(next(iter(data.values()))),
        _decibels([part.powers for part in parts]),
        _decibels([part.outputs for part in parts]),
        _complete(statistics),
        {name: _share([p.clips[name] for p in parts if name in p.clips]) for name in ways_in},
    )


def measure_constants(quantized: Graph) -> Measured:
    """Measure without samples: statistics of weights and biases."""
    statistics = {}
    for node in quantized.topological():
        constant = quantized.constant(original(quantized, node.name))
        if node.op in QUANTIZERS and constant is not None:
            found = statistics_of(constant, spec_of(node))
            statistics.update({node.name: found} if found is not None else {})
    return Measured(0, {}, {}, statistics)


Powers = tuple[float, float]
Clips = tuple[int, int]  # values that are clipped, all values


@dataclass(frozen=True)
class MeasuredChunk:
    """Measurements on one chunk of samples."""

    powers: dict[str, Powers] = field(default_factory=dict)
    outputs: dict[str, Powers] = field(default_factory=dict)
    statistics: dict[str, Statistics | None] = field(default_factory=dict)
    clips: dict[str, Clips] = field(default_factory=dict)


def _names_by_value(values: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of each value."""
    names: dict[str, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    return names


def _complete(parts: Mapping[str, Sequence[Statistics | None]]) -> dict[str, Statistics]:
    """The parts of each name joined, without names of which a part is missing."""
    found: dict[str, Statistics] = {}
    for name, all_parts in parts.items():
        known = [part for part in all_parts if part is not None]
        if known and len(known) == len(all_parts):
            found[name] = joined(known)
    return found


def _powers(wanted: Array, found: Array) -> Powers:
    """Sums of squares: of `wanted`, and of its difference from `found`."""
    found = np.broadcast_to(found, wanted.shape)
    if wanted.dtype == found.dtype == np.float32:
        return kernels.squares(wanted, found)
    exact = wanted.astype(np.float64)
    return float(np.square(exact).sum()), float(np.square(found - exact).sum())


def _decibels(parts: list[dict[str, Powers]]) -> dict[str, float]:
    """SQNR by name, over the chunks that have it; the first chunk has all."""
    return {
        name: decibel(*np.sum([part[name] for part in parts if name in part], axis=0))
        for name in parts[0]
    }


def _share(parts: list[Clips]) -> float:
    clipped, values = np.sum(parts, axis=0)
    return float(clipped / max(values, 1))


def original(quantized: Graph, name: str) -> str:
    """The value of the float graph that corresponds to a quantizer."""
    value = name
    while (node := quantized.producer(value)).op == "quantize":
        (value,) = node.inputs
    return value
