"""The powers of two that bring the features of an input into one range, from data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.numerics import MAX_EXPONENT
from qgraph.quant.samples.data import chunk_at, chunk_count, chunk_inputs
from qgraph.transforms.scale_inputs import scalable_inputs


def feature_exponents(graph: Graph, data: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """Compute, for each input of layers, the factors that bring its features into [-1, 1].

    data: arrays [samples, features] by input name. Features that are always zero get the factor of
    the largest feature.
    """
    ends = scalable_inputs(graph)
    if not ends:
        return {}
    chunks = chunk_inputs(graph, data)
    peaks = [
        {v: np.abs(a).max(axis=0) for v, a in evaluate(graph, chunk_at(chunks, i), ends).items()}
        for i in range(chunk_count(chunks))
    ]
    return {end: _exponents(np.max([peak[end] for peak in peaks], axis=0)) for end in ends}


def _exponents(peaks: Array) -> tuple[int, ...]:
    known = np.where(peaks > 0, peaks, peaks.max(initial=0) or 1.0).astype(np.float64)
    exponents = np.clip(-np.ceil(np.log2(known)), -MAX_EXPONENT, MAX_EXPONENT)
    return tuple(int(e) for e in exponents)
