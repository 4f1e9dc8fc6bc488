"""Measure the time of float islands in a run of the engine, and name the ops that cause them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qgraph.ir.reading import kind_of
from qgraph.program.islands import islands
from qgraph.runtime.session import Session
from qgraph.stored import load_network

RUNS = 5


@dataclass(frozen=True)
class IslandTime:
    """A float island: its ops by kind, those without an integer form, its ends, its time.

    `milliseconds` and `share`, of a whole run, are those of the fastest of several runs on the
    stored sample, with one thread.
    """

    ops: Sequence[str]
    closed_by: Sequence[str]
    reads: Sequence[str]
    feeds: Sequence[str]
    milliseconds: float
    share: float


def island_times(folder: str | Path) -> list[IslandTime]:
    """The islands of a network that `qgraph quantize` wrote, each with its time on the sample.

    Raises LoadError, and UnsupportedError where the network has no integer program.
    """
    network = load_network(folder)
    found = islands(network.graph, network.program)
    if not found or not network.sample:
        return []
    session = Session.open(folder)
    best, whole = None, float("inf")
    for _ in range(RUNS):
        begin = time.perf_counter()
        session.run(network.sample)
        taken = time.perf_counter() - begin
        if taken < whole:
            best, whole = session.seconds, taken
    assert best is not None
    return [
        IslandTime(
            list(dict.fromkeys(map(kind_of, island.nodes))),
            [f"`{kind_of(node)}` at {node.name}" for node in island.causes],
            island.reads,
            [entry.tensor for entry in island.feeds],
            round(seconds * 1e3, 4),
            round(seconds / whole, 4),
        )
        for island, seconds in zip(found, best[1:-1], strict=True)
    ]
