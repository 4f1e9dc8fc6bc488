"""Statistics of the float network on samples: ranges and histograms of tensors, means of channels.

One pass, chunk by chunk. Each value is processed while it is in cache, and no value is stored. All
calibrations and corrections of the same network can use the result instead of running the network.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph import kernels
from qgraph.ir.graph import Graph, node_of
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, Moments, Role
from qgraph.parallel import Each, over_chunks
from qgraph.progress import Steps, silent_steps
from qgraph.quant.graph_run import GraphRun, unquantized
from qgraph.quant.peers import ALONE, Peers, interleaved, own_items
from qgraph.quant.running_tensor import RunningTensor
from qgraph.quant.samples.data import chunk_at, chunk_count, chunk_inputs
from qgraph.quant.thresholds import Distribution, Range
from qgraph.quant.topology import QUANTIZERS
from qgraph.rewrite.constants import Float64, is_layer


@dataclass(frozen=True)
class FloatStatistics:
    """Statistics of the inputs of quantizers, and means of channels before biases.

    `tensors`: by quantizer; accumulators and other wide stages have no histogram. `means`: of each
    channel of a layer, over samples and positions, by the name of its `bias_add`.
    """

    tensors: Mapping[str, Distribution]
    means: Mapping[str, Float64]

    @staticmethod
    def of(
        graph: Graph, data: Mapping[str, Array], on_chunk: Steps = silent_steps
    ) -> FloatStatistics:
        """Run `graph`, with its quantizers off, on all samples of `data`.

        Raises CalibrationError if the input of a quantizer is empty or contains NaN or infinity.
        """
        chunks = chunk_inputs(graph, data)
        with over_chunks(chunk_count(chunks)) as each:
            return statistics_of_chunks(graph, chunks, each, on_chunk)


def statistics_of_chunks(
    graph: Graph,
    chunks: Mapping[str, Sequence[Array]],
    each: Each,
    on_chunk: Steps = silent_steps,
    peers: Peers = ALONE,
) -> FloatStatistics:
    """Like `FloatStatistics.of`, for samples in chunks, which are spread over the `peers`."""
    done, count = itertools.count(1), chunk_count(chunks)
    values = _Values(graph, count)
    run = GraphRun(graph, (), values.names, quantized=False)

    def look(i: int) -> None:
        feeds = chunk_at(chunks, i)
        run(feeds, lambda name, x, ends: values.look(i, name, x, ends))
        on_chunk(next(done), count)

    for _ in each(look, range(count)):
        pass
    values.join(peers)
    return values.found()


def channel_sums(x: Array) -> Float64:
    """The sum of each channel, which is the last axis, in float64."""
    if x.dtype == np.float32:
        return kernels.channel_sums(x)
    return np.asarray(x.reshape(-1, x.shape[-1]).sum(axis=0, dtype=np.float64))


def channel_squares(x: Array, centre: Float64) -> Float64:
    """The sum of `(x - centre)**2` of each channel, in float64."""
    if x.dtype == np.float32:
        return kernels.channel_squares(x, centre)
    off = x.reshape(-1, x.shape[-1]) - centre
    return np.asarray(np.square(off, dtype=np.float64).sum(axis=0))


def positions(x: Array) -> int:
    """The number of positions, which is the number of values of each channel."""
    return int(x.size) // max(int(x.shape[-1]), 1)


@dataclass(frozen=True)
class MomentsOfRows:
    """Mean and variance of each channel over `rows` positions, [channels] each."""

    rows: int
    mean: Float64
    variance: Float64

    @staticmethod
    def of(x: Array) -> MomentsOfRows:
        """x [..., channels]."""
        rows = positions(x)
        mean = channel_sums(x) / max(rows, 1)
        return MomentsOfRows(rows, mean, channel_squares(x, mean) / max(rows, 1))


def joined_moments(parts: Sequence[MomentsOfRows]) -> Moments:
    """The moments of all positions together (Chan et al., 1979)."""
    rows = np.array([part.rows for part in parts], np.float64)[:, None]
    means = np.stack([part.mean for part in parts])
    variances = np.stack([part.variance for part in parts])
    share = rows / max(rows.sum(), 1)
    mean = (share * means).sum(axis=0)
    return Moments(mean, np.sqrt((share * (variances + (means - mean) ** 2)).sum(axis=0)))


class _Values:
    """Statistics so far of values of a graph whose quantizers are off. It is thread-safe.

    Several quantizers may have the same input, which is counted once.
    """

    def __init__(self, graph: Graph, count: int) -> None:
        self.quantizers, self.biases = _quantizers(graph), _biases(graph)
        counted = {
            value
            for name, value in self.quantizers.items()
            if spec_of(graph.nodes[name]).role != Role.INTERNAL
        }
        self.tensors = {v: RunningTensor(v in counted) for v in self.quantizers.values()}
        self.sums = {value: [np.zeros(0)] * count for value in self.biases.values()}
        self.rows = {value: [0] * count for value in self.sums}

    @property
    def names(self) -> set[str]:
        return self.tensors.keys() | self.sums.keys()

    def look(self, chunk: int, name: str, x: Array, ends: Range | None) -> None:
        """Add one chunk of a value."""
        if name in self.sums:
            self.sums[name][chunk] = channel_sums(x)
            self.rows[name][chunk] = positions(x)
        if name in self.tensors:
            self.tensors[name].add(x, ends)

    def join(self, peers: Peers) -> None:
        """Add what other processes have looked at; they join this one too."""
        if peers.count == 1:
            return
        for value, sums in self.sums.items():
            own = own_items(sums, peers), own_items(self.rows[value], peers)
            parts = peers.gathered(own)
            self.sums[value] = interleaved([part for part, _ in parts])
            self.rows[value] = interleaved([part for _, part in parts])
        for tensor in self.tensors.values():
            tensor.join(peers)

    def found(self) -> FloatStatistics:
        means = {v: np.sum(sums, axis=0) / sum(self.rows[v]) for v, sums in self.sums.items()}
        return FloatStatistics(
            {name: self.tensors[v].result(name) for name, v in self.quantizers.items()},
            {name: means[value] for name, value in self.biases.items()},
        )


def _quantizers(graph: Graph) -> dict[str, str]:
    """The quantizers whose exponent depends on data, with their input values.

    For a table, the value is the result of its function.
    """
    varying: set[str] = set()
    found = {}
    for node in graph.topological():
        if node.op == "input" or any(node_of(v) in varying for v in node.inputs):
            varying.add(node.name)
            if node.op in QUANTIZERS and spec_of(node).exponent is None:
                taken = node.name if node.op == "lookup" else node.inputs[0]
                found[node.name] = unquantized(graph, taken)
    return found


def _biases(graph: Graph) -> dict[str, str]:
    """The biases of layers, with the values that they are added to."""
    found = {}
    for node in graph.topological():
        value = unquantized(graph, node.inputs[0]) if node.op == "bias_add" else ""
        if value and is_layer(graph.producer(value)):
            found[node.name] = value
    return found
