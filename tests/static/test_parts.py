"""Samples in parts: none in common, whole batches, and few are not split."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.static.sample_parts import split


def network(batch: int | None = None) -> Graph:
    g = Graph("net")
    g.outputs["y"] = g.add("relu", g.input("x", "float32", (batch, 2)))
    return g


def samples(count: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(count, dtype=np.float32)[:, None] * np.ones(2, np.float32)}


@pytest.mark.parametrize("count", [8, 31, 500])
def test_parts_share_no_sample(count: int) -> None:
    parts = split(network(), samples(count))
    kinds = [parts.calibration, parts.comparison, parts.report]
    seen = [set(part["x"].ravel().tolist()) for part in kinds]
    assert parts.held_out and all(seen)
    assert not any(a & b for a, b in itertools.combinations(seen, 2))
    assert set.union(*seen) == set(range(count))
    assert set(parts.learning["x"].ravel().tolist()) == seen[0] | seen[1]


def test_few_samples_are_not_split_and_batches_stay_whole() -> None:
    assert not split(network(), samples(3)).held_out
    parts = split(network(batch=4), samples(40))
    assert parts.held_out and {len(p["x"]) % 4 for p in (parts.comparison, parts.report)} == {0}
