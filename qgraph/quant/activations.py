"""Outputs of layers after their activations, measured on samples.

Batch norms describe a layer before its activation, with the borders that zero padding causes. In an
edge detector, these borders may cause all of the variance, and ReLU6 clips them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array
from qgraph.parallel import over_chunks
from qgraph.quant.data import at_least, chunk_count, chunk_inputs, thinned
from qgraph.quant.float_statistics import MomentsOfRows, joined_moments
from qgraph.quant.graph_run import GraphRun
from qgraph.quant.moments import Bound, clip_of
from qgraph.rewrite.constants import Float64

SAMPLES = 16  # more samples hardly change the factors of channels (docs/static_steps.md)
NUMBERS = 1 << 20  # if samples are small, as many are used as contain this many numbers


@dataclass(frozen=True)
class ActivatedChannels:
    """Variance of each channel after bias and activation, and the share that is not clipped."""

    variance: Float64
    unclipped: Float64


def activated_channels(
    graph: Graph, layers: Iterable[Node], data: Mapping[str, Array]
) -> dict[str, ActivatedChannels]:
    """Run the float `graph` on about `SAMPLES` of `data`; returns the channels of each layer."""
    data = thinned(graph, data, at_least(data, SAMPLES, NUMBERS))
    clips = {clip[0]: (node.name, *clip[1:]) for node in graph.topological()
             if (clip := clip_of(graph, node))}  # fmt: skip
    ends = {layer.name: _end(graph, layer, clips) for layer in layers}
    wanted = {value: bounds for value, *bounds in ends.values()}
    chunks = chunk_inputs(graph, data)
    run = GraphRun(graph, (), wanted.keys())

    def look(i: int) -> dict[str, _Chunk]:
        found: dict[str, _Chunk] = {}

        def on_value(name: str, x: Array, _: object) -> None:
            if name in wanted:
                found[name] = _Chunk.of(x, *wanted[name])

        run({name: arrays[i] for name, arrays in chunks.items()}, on_value)
        return found

    with over_chunks(chunk_count(chunks)) as each:
        seen = [*each(look, range(chunk_count(chunks)))]
    return {layer: _joined([chunk[end[0]] for chunk in seen]) for layer, end in ends.items()}


@dataclass(frozen=True)
class _Chunk:
    moments: MomentsOfRows
    unclipped: Float64  # number of values, by channel

    @staticmethod
    def of(x: Array, low: Bound, high: Bound) -> _Chunk:
        inside = ((x > low) & (x < high)).sum(axis=tuple(range(x.ndim - 1)), dtype=np.float64)
        return _Chunk(MomentsOfRows.of(x), inside)


def _joined(chunks: list[_Chunk]) -> ActivatedChannels:
    rows = sum(chunk.moments.rows for chunk in chunks)
    moments = joined_moments([chunk.moments for chunk in chunks])
    unclipped = np.sum([chunk.unclipped for chunk in chunks], axis=0)
    return ActivatedChannels(moments.deviation**2, unclipped / max(rows, 1))


def _end(
    graph: Graph, layer: Node, clips: Mapping[str, tuple[str, Bound, Bound]]
) -> tuple[str, Bound, Bound]:
    """The value after a layer's bias and activation, and the activation's bounds."""
    value = layer.name
    while len(users := graph.users(value)) == 1 and users[0].op == "bias_add":
        value = users[0].name
    if len(users) == 1 and value in clips:
        return clips[value]
    return value, -np.inf, np.inf
