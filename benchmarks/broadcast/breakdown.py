"""Breakdown of an actor's time while a learner publishes weights, as in figure 9 of ActorQ's
paper.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from benchmarks.broadcast.policies import dense_policy, drawn_weights
from benchmarks.broadcast.processes import FIRST_PART, PARTS
from benchmarks.broadcast.runs import Timed, timed_run
from benchmarks.tables import Table
from qgraph.rl.actor import ActorProgram

ENVIRONMENT = "CartPole-v1"
# Steps between checks for new weights: communication-heavy and compute-heavy in the paper.
PERIODS = (30, 300)
KINDS = (("torch", 32), ("torch", 8), ("ours", 32), ("ours", 16), ("ours", 8), ("ours", 4))
NAMES = {"ours": "qgraph", "torch": "PyTorch, as ActorQ"}
WARM_UP = 100  # steps that are not counted


def breakdown(name: str, hidden: tuple[int, ...], steps: int, interval: float) -> Table:
    """Milliseconds per 1000 steps of one actor, whose learner publishes every `interval`
    seconds.
    """
    program = dense_policy(hidden)
    table = Table(
        f"1000 steps with {name} in {ENVIRONMENT}, ms",
        {"looks every": "", "actor": "", "bits": "d", **dict.fromkeys(PARTS, ".1f"),
         "in all": ".1f"},
        notes=[f"The learner publishes every {1e3 * interval:.0f} ms, and sleeps in between."],
    )  # fmt: skip
    for period in PERIODS:
        for kind, bits in KINDS:
            given: dict[str, Any] = {"period": period, "environment": ENVIRONMENT}
            with timed_run(kind, program, bits, **given) as timed:
                parts = part_times(timed, program, steps, interval)
            table.add(f"{period} steps", NAMES[kind], bits, *parts, sum(parts))
    return table


def part_times(
    timed: Timed, program: ActorProgram, steps: int, interval: float, actors: int = 1
) -> list[float]:
    """Milliseconds per 1000 steps of an actor, by PARTS, while weights are published."""
    weights = drawn_weights(program)
    version, due = 0, time.monotonic()
    first: list[Any] = []

    def publishing(enough: int) -> bool:
        nonlocal version, due
        if time.monotonic() >= due:
            version, due = version + 1, time.monotonic() + interval
            timed.publish(weights, version)
        return all(timed.numbers(i)[FIRST_PART + len(PARTS)] >= enough for i in range(actors))

    for enough in (WARM_UP, WARM_UP + steps):
        timed.until(partial(publishing, enough))
        first.append([timed.numbers(i)[FIRST_PART:].copy() for i in range(actors)])
    passed = sum(after - before for before, after in zip(*first, strict=True))
    return [float(part / passed[-1] * 1e6) for part in passed[:-1]]
