"""Many actors: steps per second, and the cost model of appendix B of ActorQ's paper.

The model: quantization saves C = cb * na + ca * na - co * np, for na actors on np processors. cb is
the time saved in a broadcast, ca the time saved in inference, and co the overhead of each
processor. Here C is the processor seconds of all actors together, for 1000 steps of each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.broadcast.breakdown import ENVIRONMENT, part_times
from benchmarks.broadcast.policies import dense_policy, drawn_weights
from benchmarks.broadcast.processes import CLOCKS, PARTS
from benchmarks.broadcast.runs import timed_run
from benchmarks.tables import Table
from qgraph.rl.actor import Packer

BITS = (32, 8)
PERIOD = 100
CLUSTER_ACTORS, NETWORK = 1000, 10e9 / 8  # actors, and bytes per second of a link to all of them


@dataclass(frozen=True)
class Costs:
    """Costs of 1000 steps of one of several parallel actors, in seconds of its processor and of the
    clock.
    """

    actors: int
    bits: int
    broadcast: float
    inference: float
    other: float
    wall: float

    @property
    def processor(self) -> float:
        return self.broadcast + self.inference + self.other


def scaling(
    name: str, hidden: tuple[int, ...], counts: Sequence[int], steps: int, interval: float
) -> list[Table]:
    """Tables of the measurements and of the fitted model, with its prediction."""
    program = dense_policy(hidden)
    found = []
    for actors in counts:
        for bits in BITS:
            times = {}
            for clock in CLOCKS:
                given = {"period": PERIOD, "environment": ENVIRONMENT, "clock": clock}
                with timed_run("ours", program, bits, actors, **given) as timed:
                    times[clock] = (
                        np.array(part_times(timed, program, steps, interval, actors)) / 1e3
                    )
            own = times["processor"]
            act, environment = own[PARTS.index("act")], own[PARTS.index("environment")]
            broadcast = own.sum() - act - environment
            parts = (broadcast, act, environment, times["wall"].sum())
            found.append(Costs(actors, bits, *map(float, parts)))
    sizes = {bits: Packer(program, bits).pack(drawn_weights(program)).nbytes for bits in BITS}
    return [_measured(name, found), _model(found, sizes)]


def _measured(name: str, found: Sequence[Costs]) -> Table:
    table = Table(
        f"Actors beside each other, {name} in {ENVIRONMENT}, {os.cpu_count()} processors",
        {"actors": "", "bits": "", "steps/s, all": ".0f", "broadcast, ms of 1000 steps": ".2f",
         "inference": ".1f", "environment": ".1f"},
        notes=["broadcast, inference and environment: the processor's time of one actor"],
    )  # fmt: skip
    for cost in found:
        rate = 1000 / cost.wall * cost.actors
        parts = (1e3 * cost.broadcast, 1e3 * cost.inference, 1e3 * cost.other)
        table.add(cost.actors, cost.bits, rate, *parts)
    return table


def _model(found: Sequence[Costs], sizes: dict[int, int]) -> Table:
    """Fit cb and ca from one actor alone, and co by least squares from all."""
    by = {(cost.actors, cost.bits): cost for cost in found}
    counts = sorted({cost.actors for cost in found})
    slow, fast = (by[counts[0], bits] for bits in BITS)
    cb, ca = slow.broadcast - fast.broadcast, slow.inference - fast.inference
    saved = np.array([n * (by[n, BITS[0]].processor - by[n, BITS[1]].processor) for n in counts])
    processors = np.array([min(n, os.cpu_count() or 1) for n in counts])
    ideal = (cb + ca) * np.array(counts)
    co = float((ideal - saved) @ processors / (processors @ processors))
    table = Table(
        f"Saved by {BITS[1]} bits, s of all processors' time for 1000 steps of each actor",
        {"actors": "", "processors": "", "measured": ".2f", "model": ".2f"},
    )
    for n, np_, measured in zip(counts, processors, saved, strict=True):
        table.add(n, int(np_), float(measured), (cb + ca) * n - co * int(np_))
    # In a cluster, blocks are sent one after the other over a link, to each actor at each check.
    looks = 1000 / PERIOD
    link = looks * (sizes[BITS[0]] - sizes[BITS[1]]) / NETWORK
    table.add(CLUSTER_ACTORS, CLUSTER_ACTORS, None, (cb + link + ca - co) * CLUSTER_ACTORS)
    table.notes += [
        f"cb = {cb:.4f} s, ca = {ca:.4f} s, co = {co:.4f} s per actor or processor.",
        f"{CLUSTER_ACTORS} actors: a prediction, not a measurement. Each has a processor, and its "
        f"blocks come over a link of {NETWORK * 8 / 1e9:.0f} Gbit/s, which makes cb "
        f"{link:.3f} s more.",
    ]
    return table
