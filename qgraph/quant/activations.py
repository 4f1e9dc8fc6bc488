"""Inputs of layers, and outputs after their activations, measured on samples.

Batch norms describe a layer before its activation, with the borders that zero padding causes. In an
edge detector, these borders may cause all of the variance, and ReLU6 clips them. Batch norms know
deviations, but not how far the largest values of a channel are from its mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array
from qgraph.parallel import over_chunks
from qgraph.quant.float_statistics import MomentsOfRows, joined_moments
from qgraph.quant.graph_run import GraphRun
from qgraph.quant.moments import Bound, clip_of
from qgraph.quant.samples.data import at_least, chunk_at, chunk_count, chunk_inputs, thinned
from qgraph.rewrite.constants import Float64

SAMPLES = 16  # more samples hardly change the factors of channels (docs/static_steps.md)
NUMBERS = 1 << 20  # if samples are small, as many are used as contain this many numbers


@dataclass(frozen=True)
class ActivatedChannels:
    """The channels of a layer on samples.

    variance: of outputs after bias and activation. unclipped: the share of these that the
    activation does not clip. largest: the largest magnitude of each input; None if batch norms
    determine the ranges.
    """

    variance: Float64
    unclipped: Float64
    largest: Float64 | None = None


def activated_channels(
    graph: Graph, layers: Iterable[Node], data: Mapping[str, Array]
) -> dict[str, ActivatedChannels]:
    """Run the float `graph` on about `SAMPLES` of `data`; returns the channels of each layer."""
    data = thinned(graph, data, at_least(data, SAMPLES, NUMBERS))
    clips = {clip[0]: (node.name, *clip[1:]) for node in graph.topological()
             if (clip := clip_of(graph, node))}  # fmt: skip
    inputs = {layer.name: layer.inputs[0] for layer in layers}
    ends = {layer.name: _end(graph, layer, clips) for layer in layers}
    wanted = {value: bounds for value, *bounds in ends.values()}
    chunks = chunk_inputs(graph, data)
    run = GraphRun(graph, (), {*wanted, *inputs.values()})

    def look(i: int) -> tuple[dict[str, _Chunk], dict[str, Array]]:
        found: dict[str, _Chunk] = {}
        largest: dict[str, Array] = {}

        def on_value(name: str, x: Array, _: object) -> None:
            if name in wanted:
                found[name] = _Chunk.of(x, *wanted[name])
            if name in inputs.values():
                largest[name] = np.abs(x).max(axis=tuple(range(x.ndim - 1)), initial=0)

        run(chunk_at(chunks, i), on_value)
        return found, largest

    with over_chunks(chunk_count(chunks)) as each:
        seen = [*each(look, range(chunk_count(chunks)))]
    return {
        layer: _joined([found[end[0]] for found, _ in seen], [at[inputs[layer]] for _, at in seen])
        for layer, end in ends.items()
    }


@dataclass(frozen=True)
class _Chunk:
    moments: MomentsOfRows
    unclipped: Float64  # number of values, by channel

    @staticmethod
    def of(x: Array, low: Bound, high: Bound) -> _Chunk:
        inside = ((x > low) & (x < high)).sum(axis=tuple(range(x.ndim - 1)), dtype=np.float64)
        return _Chunk(MomentsOfRows.of(x), inside)


def _joined(chunks: list[_Chunk], largest: list[Array]) -> ActivatedChannels:
    rows = sum(chunk.moments.rows for chunk in chunks)
    moments = joined_moments([chunk.moments for chunk in chunks])
    unclipped = np.sum([chunk.unclipped for chunk in chunks], axis=0)
    variance, inputs = moments.deviation**2, np.max(largest, axis=0)
    return ActivatedChannels(variance, unclipped / max(rows, 1), inputs.astype(np.float64))


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
