"""Distance of quantized tensors from those of the float network: SQNR and clipped values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from qgraph.exact.statistics import Statistics, decibel, joined, past_ends, statistics_of
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array
from qgraph.parallel import over_chunks
from qgraph.quant.data import chunk_inputs
from qgraph.quant.graph_run import GraphRun
from qgraph.quant.topology import QUANTIZERS


@dataclass(frozen=True)
class Measured:
    """Measurements on `samples` samples: by quantizer SQNR in dB and statistics, by output SQNR.

    The signal is the float network's tensor, the noise what the quantized network has in its
    place, all errors before it included. Infinite where there is no noise. `clipped` is the share
    of values in the quantized network that a quantizer moves by more than a step.
    """

    samples: int
    sqnr: Mapping[str, float]
    outputs: Mapping[str, float]
    statistics: Mapping[str, Statistics]
    clipped: Mapping[str, float] = field(default_factory=dict)


def measure(quantized: Graph, floating: Graph, data: Mapping[str, Array]) -> Measured:
    """Run both networks over the samples of `data` and compare them, quantizer by quantizer."""
    quantizers = [n for n in quantized.topological() if n.op in QUANTIZERS]
    specs = {n.name: spec_of(n) for n in quantizers}
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
    count = len(next(iter(chunks.values())))
    ends = [*outputs.values()]
    of_floating = GraphRun(floating, [*pairs.values(), *(a for a, _ in ends)])
    of_quantized = GraphRun(quantized, [*pairs, *ways_in.values(), *(b for _, b in ends)])

    def at(i: int) -> Part:
        feeds = {name: arrays[i] for name, arrays in chunks.items()}
        wanted, found = of_floating(feeds), of_quantized(feeds)
        return (
            {name: _powers(wanted[value], found[name]) for name, value in pairs.items()},
            {public: _powers(wanted[a], found[b]) for public, (a, b) in outputs.items()},
            {
                name: statistics_of(wanted[value], specs[name])
                for name, value in pairs.items()
                if constants[name] is None
            },
            {
                name: (sum(past_ends(found[value], specs[name])), found[value].size)
                for name, value in ways_in.items()
            },
        )

    with over_chunks(count) as each:
        parts = [*each(at, range(count))]
    statistics: dict[str, Statistics] = {}
    for name, constant in constants.items():
        kept = (
            [statistics_of(constant, specs[name])]
            if constant is not None
            else [part[2].get(name) for part in parts]
        )
        known = [part for part in kept if part is not None]
        if known and len(known) == len(kept):
            statistics[name] = joined(known)
    return Measured(
        len(next(iter(data.values()))),
        _decibels([part[0] for part in parts]),
        _decibels([part[1] for part in parts]),
        statistics,
        {name: _share([part[3][name] for part in parts]) for name in ways_in},
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
Part = tuple[
    dict[str, Powers], dict[str, Powers], dict[str, Statistics | None], dict[str, Clips]
]  # what one chunk of samples shows


def _powers(wanted: Array, found: Array) -> Powers:
    exact = wanted.astype(np.float64)
    return float((exact**2).sum()), float(((found - exact) ** 2).sum())


def _decibels(parts: list[dict[str, Powers]]) -> dict[str, float]:
    return {name: decibel(*np.sum([part[name] for part in parts], axis=0)) for name in parts[0]}


def _share(parts: list[Clips]) -> float:
    clipped, values = np.sum(parts, axis=0)
    return float(clipped / max(values, 1))


def original(quantized: Graph, name: str) -> str:
    """The value of the float graph that a quantizer stands for."""
    node = quantized.nodes[name]
    while node.op == "quantize":
        node = quantized.producer(node.inputs[0])
    return node.name
