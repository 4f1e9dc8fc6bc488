"""Measure how close the outputs of a quantized network are to those of its float network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.exact.statistics import decibel
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.parallel import over_chunks
from qgraph.quant.graph_run import GraphRun
from qgraph.quant.samples.data import chunk_at, chunk_count, chunk_inputs
from qgraph.static.sample_parts import samples_of


@dataclass(frozen=True)
class SampleTally:
    """Squares of the float outputs and of their errors, by sample and output; equal answers.

    `signal` and `noise` are float64 [samples, outputs].
    """

    signal: Array
    noise: Array
    same: int
    answers: int


@dataclass(frozen=True)
class Agreement:
    """Distance of the quantized outputs from those of the float network, on `samples` samples.

    `sqnr` is in dB (at the logits, if the output is their softmax); several outputs have equal
    weights. `top1` is the share of samples with the same largest output, None if outputs are not
    classes.
    """

    sqnr: float
    top1: float | None
    samples: int


# The lower limits of each level: SQNR in dB at the outputs, and share of equal answers. Outputs
# below all of them are far from the float network.
LEVELS = (
    (40.0, 0.99, "Very close to float"),
    (25.0, 0.95, "Close to float"),
    (15.0, 0.80, "Noticeably off"),
)
ENOUGH_ANSWERS = 50
RULE_OF_THREE = 3  # if none of n answers differs, the share that differs is below 3 / n (95 %)


def level_of(sqnr: float, top1: float | None, samples: int) -> int:
    """Index of the outputs in `LEVELS`; its length if they reach no level.

    The share of equal answers decides if there are enough answers; otherwise the worse of both
    criteria decides.
    """
    answers = samples if top1 is not None and samples >= ENOUGH_ANSWERS else 0
    reached = (
        i
        for i, (least, same, _) in enumerate(LEVELS)
        if (sqnr >= least or answers * (1 - same) >= RULE_OF_THREE)
        and (top1 is None or top1 >= same)
    )
    return next(reached, len(LEVELS))


def decisions(graph: Graph) -> list[str]:
    """The values that outputs depend on: an output itself, or the logits of a softmax."""
    found = []
    for value in graph.outputs.values():
        node = graph.producer(value)
        while node.op in ("softmax", "log_softmax", "reshape", "squeeze", "identity"):
            value, node = node.inputs[0], graph.producer(node.inputs[0])
        found.append(value)
    return found


def agreement(wanted: Graph, found: Graph, data: Mapping[str, Array]) -> Agreement:
    """Compare two graphs of the same inputs and outputs over the samples of `data`."""
    chunks = chunk_inputs(wanted, data)
    count = chunk_count(chunks)
    ends = paired_decisions(wanted, found)
    of_wanted, of_found = GraphRun(wanted, ends.values()), GraphRun(found, ends)

    def compare(i: int) -> SampleTally:
        feeds = chunk_at(chunks, i)
        a, b = of_wanted(feeds), of_found(feeds)
        return tally([a[v] for v in ends.values()], [*b.values()], rows_of(feeds))

    with over_chunks(count) as each:
        return judge(found, [*ends], [*each(compare, range(count))], samples_of(data))


def paired_decisions(wanted: Graph, found: Graph) -> dict[str, str]:
    """Pairs of decisions: each of `found` with that of the same output in `wanted`.

    Outputs that share a decision, such as logits and their softmax, count once.
    """
    return dict(zip(decisions(found), decisions(wanted), strict=True))


def rows_of(feeds: Mapping[str, Array]) -> int:
    """The number of samples in a chunk."""
    return len(next(iter(feeds.values())))


def tally(wanted: Sequence[Array], found: Sequence[Array], rows: int) -> SampleTally:
    """Contribution of one chunk of `rows` samples to an agreement.

    A chunk counts as one sample if samples are not the first dimension of an output.
    """
    exact = [a.astype(np.float64) for a in wanted]
    errors = [a - b for a, b in zip(exact, found, strict=True)]
    apart = all(a.ndim and a.shape[0] and a.shape[0] % rows == 0 for a in exact)

    def squares(values: Array) -> Array:
        by_sample = values.reshape(rows if apart else 1, -1)
        summed: Array = np.einsum("ij,ij->i", by_sample, by_sample)
        return summed

    a, b = np.atleast_1d(exact[0], found[0])
    return SampleTally(
        np.stack([squares(values) for values in exact], axis=1),
        np.stack([squares(values) for values in errors], axis=1),
        int(np.count_nonzero(a.argmax(-1) == b.argmax(-1))),
        a[..., 0].size,
    )


def weighed_sqnr(signal: Array, noise: Array) -> float:
    """SQNR in dB of outputs with this signal and noise, from their mean ratio of noise to signal.

    Outputs that are all zeros only count if all outputs are.
    """
    some = signal > 0
    if not some.any():
        return decibel(0.0, float(noise.sum()))
    return decibel(1.0, float((noise[some] / signal[some]).mean()))


def judge(
    graph: Graph, ends: Sequence[str], tallies: Sequence[SampleTally], samples: int
) -> Agreement:
    """The agreement from tallies of the values `ends`."""
    signal, noise = (
        np.concatenate(parts).sum(axis=0)
        for parts in ([t.signal for t in tallies], [t.noise for t in tallies])
    )
    same, answers = sum(t.same for t in tallies), sum(t.answers for t in tallies)
    shape = graph.types[ends[0]].shape or ()
    classes = len(ends) == 1 and len(shape) >= 2 and shape[-1] not in (1, None)
    return Agreement(weighed_sqnr(signal, noise), same / answers if classes else None, samples)
