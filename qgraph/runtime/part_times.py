"""Measure how long each integer segment and each float part of a run in the engine takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import kind_of
from qgraph.program import Program
from qgraph.program.islands import islands
from qgraph.runtime.session import Session
from qgraph.stored import load_network
from qgraph.stored.manifest import Manifest

RUNS = 9


class PartKind(StrEnum):
    """The place of a part in a run, and whether it is float."""

    BEFORE = "float, before"
    INTEGER = "integer"
    ISLAND = "float island"
    BEHIND = "float, behind"


@dataclass(frozen=True)
class PartTime:
    """An integer segment in the engine, or float ops in numpy, and how long it takes.

    `ops` counts ops by kind, and `closed_by` names those that keep an island float. `reads` and
    `feeds` are the tensors at the ends. `milliseconds` is the median of several runs of one
    calibration sample with one thread, and `share` the part of the sum of all medians.
    """

    kind: PartKind
    ops: Mapping[str, int]
    closed_by: Sequence[str]
    reads: Sequence[str]
    feeds: Sequence[str]
    milliseconds: float = 0.0
    share: float = 0.0


def part_times(folder: str | Path, manifest: Manifest) -> list[PartTime]:
    """The parts of a network that `qgraph quantize` wrote, in the order in which they run.

    A segment's time includes that of making codes of its entries. Float parts without ops are left
    out. Empty if no float island divides the network, or if it has no integer program. Raises
    LoadError.
    """
    if not manifest.has_islands:
        return []
    try:
        network, session = load_network(folder), Session.open(folder)
    except UnsupportedError:
        return []
    session.seconds_of_parts(network.sample)  # the first run allocates buffers
    runs = [session.seconds_of_parts(network.sample) for _ in range(RUNS)]
    medians = [1e3 * float(each) for each in np.median(runs, axis=0)]
    parts = _parts(network.graph, network.program, session)
    timed = [(p, ms) for p, ms in zip(parts, medians, strict=True) if p.ops]
    whole = sum(ms for _, ms in timed)
    return [replace(p, milliseconds=ms, share=ms / whole) for p, ms in timed]


def _parts(graph: Graph, program: Program, session: Session) -> list[PartTime]:
    """The parts that `Session.seconds_of_parts` measures, not yet timed."""
    first, *later = session.stages
    ends = [entry.tensor for entry in first.part.entries]
    found = [_float(PartKind.BEFORE, first.before, tuple(graph.inputs), ends)]
    found.append(_integer(first.part))
    for island, stage in zip(islands(graph, program), later, strict=True):
        ends = [entry.tensor for entry in island.feeds]
        closed_by = [f"`{kind_of(node)}` at {node.name}" for node in island.causes]
        found.append(_float(PartKind.ISLAND, stage.before, island.reads, ends, closed_by))
        found.append(_integer(stage.part))
    known = {*graph.inputs, *program.exits}
    reads = dict.fromkeys(v for n in session.behind for v in n.inputs if v in known)
    found.append(_float(PartKind.BEHIND, session.behind, [*reads], [*graph.outputs]))
    return found


def _integer(part: Program) -> PartTime:
    entries = [entry.tensor for entry in part.entries]
    return PartTime(PartKind.INTEGER, _counts(s.op for s in part.steps), (), entries, part.exits)


def _float(
    kind: PartKind,
    nodes: Iterable[Node],
    reads: Sequence[str],
    feeds: Sequence[str],
    closed_by: Sequence[str] = (),
) -> PartTime:
    return PartTime(kind, _counts(map(kind_of, nodes)), closed_by, reads, feeds)


def _counts(ops: Iterable[str]) -> Mapping[str, int]:
    return dict(Counter(ops).most_common())
