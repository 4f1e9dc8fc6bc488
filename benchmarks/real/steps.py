"""The effect of each step of a plan, and the time of a run of the float network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import Profile
from qgraph.rewrite.trace import Trace
from qgraph.static.build import build
from qgraph.static.sample_parts import split

STEPS = {
    "method": "thresholds",
    "scale_inputs": "feature scales",
    "constant_channels": "constant channels",
    "equalize": "equalized channels",
    "powers_of_two": "powers of two",
    "absorb": "absorbed biases",
    "correct_bias": "corrected biases",
    "reconstruct": "reconstructed weights",
}
FLOAT_RUNS = 3


def built(
    model: Graph, profile: Profile, plan: Plan, samples: Mapping[str, Array]
) -> Iterator[tuple[str, Graph, float]]:
    """The network built by each plan of `steps_of(plan)`, with its name and the time in seconds."""
    learning = split(model, samples).learning
    for name, step in steps_of(plan).items():
        start = time.perf_counter()
        _, graph = build(model, profile, step, learning, Trace())
        yield name, graph, time.perf_counter() - start


def steps_of(plan: Plan) -> Mapping[str, Plan]:
    """The plans from none to `plan`. Each adds one step to the one before."""
    now, found = PLAIN, {"nothing": PLAIN}
    for name, words in STEPS.items():
        if getattr(plan, name) != getattr(now, name):
            now = replace(now, **{name: getattr(plan, name)})
            found[f"+ {words}"] = now
    if plan.reconstruct and not plan.correct_bias:
        found["corrected biases in place of these"] = replace(
            plan, reconstruct=False, correct_bias=True
        )
    return found


def seconds_of(run: Callable[[], object]) -> float:
    """The median of `FLOAT_RUNS` runs, after a warm-up."""
    times = []
    for _ in range(FLOAT_RUNS + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))
