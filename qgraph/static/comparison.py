"""Test whether one quantized network is closer to float than another, on the same samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.parallel import over_chunks
from qgraph.quant.graph_run import GraphRun
from qgraph.quant.samples.data import chunk_at, chunk_count, chunk_inputs
from qgraph.static.agreement import (
    Agreement,
    SampleTally,
    decisions,
    judge,
    paired_decisions,
    rows_of,
    tally,
    weighed_sqnr,
)
from qgraph.static.sample_parts import samples_of

DRAWS = 1000  # of the bootstrap
DOUBT = 0.05  # share of draws in which the better network may be the worse one


@dataclass(frozen=True)
class Comparison:
    """Distance of a network from float: in total, and signal and noise by sample and output."""

    agreement: Agreement
    signal: Array
    noise: Array

    def certainly_nearer(self, other: Comparison, tried: int = 1) -> bool:
        """Whether this network is significantly closer to float than `other`, on the same samples.

        Samples are drawn again with replacement, the same for both networks (a paired bootstrap).
        At least 95 % of the draws must agree. Each draw has one sample less than there are samples,
        which gives it the variance of the mean. One sample alone is therefore never significant.

        tried: the number of networks of which this one is the nearest on these samples. The share
        of draws that may disagree is divided by it (the Bonferroni correction), and there must be
        enough samples that their agreement by chance, 2 to the minus their number, is as rare.
        """
        count, doubt = len(self.noise), DOUBT / tried
        if count < 2 or (tried > 1 and 0.5**count > doubt):
            return False
        rng = np.random.default_rng(0)
        drawn = rng.multinomial(count - 1, np.full(count, 1 / count), DRAWS)
        signals, here, there = (
            # Without the BLAS, whose sums may depend on the number of threads.
            np.einsum("ds,so->do", drawn.astype(np.float64), values)
            for values in (self.signal, self.noise, other.noise)
        )
        won = sum(
            weighed_sqnr(signal, mine) > weighed_sqnr(signal, others)
            for signal, mine, others in zip(signals, here, there, strict=True)
        )
        return won >= (1 - doubt) * DRAWS


class FloatOutputs:
    """The float network's outputs on some samples, computed once for all comparisons."""

    def __init__(self, original: Graph, data: Mapping[str, Array]) -> None:
        self.original = original
        self.samples = samples_of(data)
        self.chunks = chunk_inputs(original, data)
        self.count = chunk_count(self.chunks)
        run = GraphRun(original, decisions(original))
        with over_chunks(self.count) as each:
            self.wanted = [*each(lambda i: run(chunk_at(self.chunks, i)), self._all())]

    def compare(self, graph: Graph) -> Comparison:
        """Compare `graph`, which has the inputs and outputs of the float network, with it."""
        ends = paired_decisions(self.original, graph)
        run = GraphRun(graph, ends)

        def compared(i: int) -> SampleTally:
            feeds = chunk_at(self.chunks, i)
            found = run(feeds)
            wanted = [self.wanted[i][value] for value in ends.values()]
            return tally(wanted, [*found.values()], rows_of(feeds))

        with over_chunks(self.count) as each:
            tallies = [*each(compared, self._all())]
        return Comparison(
            judge(graph, [*ends], tallies, self.samples),
            np.concatenate([t.signal for t in tallies]),
            np.concatenate([t.noise for t in tallies]),
        )

    def _all(self) -> range:
        return range(self.count)
