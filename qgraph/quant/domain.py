"""Check whether samples look like the training data, by the statistics of batch norms.

Calibration on other samples gives wrong thresholds. Each batch norm stores the mean and variance of
its input in training; samples with other statistics are not like the training data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from qgraph.ir.graph import Graph
from qgraph.ir.types import Array, Moments
from qgraph.parallel import over_chunks
from qgraph.quant.float_statistics import MomentsOfRows, joined_moments
from qgraph.quant.graph_run import GraphRun
from qgraph.quant.samples.data import chunk_at, chunk_count, chunk_inputs
from qgraph.quant.thresholds import Range
from qgraph.rewrite.constants import batch_norm_moments

SAMPLES = 32
# Limits for samples like the training data, on which at most 0.10 and 0.28 were measured, with two
# networks. Noise, another scale or much darker images give 0.3 or 0.7 and more (docs/samples.md).
MEAN_BOUND, DEVIATION_BOUND = 0.15, 0.3
MIN_SAMPLES, FEW_SAMPLES_FACTOR = 8, 2.0

REPAIRS: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {
        "divided by 255": lambda x: x / 255,
        "multiplied by 255": lambda x: x * 255,
        "as x / 127.5 - 1": lambda x: x / 127.5 - 1,
        "as (x + 1) * 127.5": lambda x: (x + 1) * 127.5,
        "as 2 * x - 1": lambda x: 2 * x - 1,
        "as (x + 1) / 2": lambda x: (x + 1) / 2,
        "with channels in reverse order": lambda x: x[..., ::-1],
    }
)


@dataclass(frozen=True)
class Drift:
    """Distance of samples from the training statistics of one batch norm; medians over channels.

    `mean`: distance of means, in deviations. `deviation`: absolute log2 ratio of deviations.
    """

    batch_norm: str
    mean: float
    deviation: float


def drifts(graph: Graph, data: Mapping[str, Array], most: int | None = None) -> list[Drift]:
    """A drift for each batch norm with constant statistics, in order; at most `most` of them.

    graph: after the passes of `qgraph.recipes.CLEAN`, with separate batch norms. data: arrays
    [samples, ...] by input name. Batch norms whose channels are all dead are left out.
    """
    norms = {
        node.name: known[0]
        for node in graph.topological()
        if node.op == "batch_norm" and (known := batch_norm_moments(graph, node)) is not None
    }
    norms = {name: known for name, known in norms.items() if _alive(known).any()}
    taken = {name: graph.nodes[name].inputs[0] for name in islice(norms, most)}
    seen = _moments(graph, data, {*taken.values()})
    return [_drift(name, seen[x], norms[name]) for name, x in taken.items() if x in seen]


def _moments(graph: Graph, data: Mapping[str, Array], values: set[str]) -> dict[str, Moments]:
    """Mean and deviation of each channel of the values that depend on data."""
    chunks, run = chunk_inputs(graph, data), GraphRun(graph, (), values)
    parts: dict[str, dict[int, MomentsOfRows]] = {}

    def look(i: int) -> None:
        def at(name: str, x: Array, _: Range | None) -> None:
            if name in values:
                parts.setdefault(name, {})[i] = MomentsOfRows.of(x)

        run(chunk_at(chunks, i), at)

    with over_chunks(chunk_count(chunks)) as each:
        for _ in each(look, range(chunk_count(chunks))):
            pass
    return {name: joined_moments([of[i] for i in sorted(of)]) for name, of in parts.items()}


def _alive(known: Moments) -> npt.NDArray[np.bool_]:
    """The channels that are not dead; dead channels do not depend on the samples."""
    return np.asarray(known.deviation > 1e-3 * known.deviation.max(initial=0))


def _drift(name: str, found: Moments, known: Moments) -> Drift:
    alive = _alive(known)
    moved = np.abs(found.mean - known.mean)[alive] / known.deviation[alive]
    ratio = np.maximum(found.deviation[alive], np.finfo(np.float64).tiny) / known.deviation[alive]
    return Drift(name, float(np.median(moved)), float(np.median(np.abs(np.log2(ratio)))))


@dataclass(frozen=True)
class Domain:
    """Comparison of `samples` samples with training: a drift per batch norm, and a likely cause."""

    samples: int
    drifts: tuple[Drift, ...]
    cause: str = ""

    @property
    def first(self) -> Drift:
        return self.drifts[0]

    @property
    def typical(self) -> Drift:
        """The medians over all batch norms."""
        pairs = [(drift.mean, drift.deviation) for drift in self.drifts]
        return Drift("all", *map(float, np.median(pairs, axis=0)))

    @property
    def warning(self) -> str:
        """A warning if the samples are not like the training data, or an empty text."""
        bound = 1.0 if self.samples >= MIN_SAMPLES else FEW_SAMPLES_FACTOR
        worse = max((self.first, self.typical), key=_score)
        if _score(worse) <= bound:
            return ""
        where = "the first batch norm" if worse is self.first else "most batch norms"
        far = (
            f"at {where}, means are {worse.mean:.3g} deviations off, "
            f"deviations by a factor of {2**worse.deviation:.3g}"
        )
        cause = f"; they would fit {self.cause}" if self.cause else ""
        return f"the samples look unlike the training data: {far}{cause}"


def _score(drift: Drift) -> float:
    """Above 1 for samples that are not like the training data (docs/samples.md)."""
    return max(drift.mean / MEAN_BOUND, drift.deviation / DEVIATION_BOUND)


def domain_of(graph: Graph, data: Mapping[str, Array]) -> Domain | None:
    """Compare `data` with batch norms of `graph`, as for `drifts`; None if there are none."""
    found = drifts(graph, data)
    if not found:
        return None
    count = len(next(iter(data.values())))
    domain = Domain(count, tuple(found))
    return replace(domain, cause=_cause(graph, data, found[0])) if domain.warning else domain


def _cause(graph: Graph, data: Mapping[str, Array], seen: Drift) -> str:
    """The correction of the samples, if a common mistake explains the drift.

    It does if, after the correction, the first batch norm is within the limits and at most half as
    far off as before (`seen`).
    """
    floating = {n: x for n, x in data.items() if graph.types[n].is_float and x.ndim > 1}
    if len(floating) != len(data):
        return ""
    scores = {
        name: _score(found[0])
        for name, repair in REPAIRS.items()
        if (found := drifts(graph, {n: repair(x) for n, x in floating.items()}, most=1))
    }
    best = min(scores, key=lambda name: scores[name], default="")
    return best if best and scores[best] <= min(1, _score(seen) / 2) else ""
