"""From the end of a learner's step to the first action by its weights."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

from benchmarks.broadcast.policies import dense_policy, drawn_weights
from benchmarks.broadcast.processes import MOMENT, VERSION
from benchmarks.broadcast.runs import timed_run
from benchmarks.real.tables import Table
from qgraph.cli.console import import_tensorflow_quietly

KINDS = (("ours", 8), ("ours", 4), ("ours", 16), ("ours", 32), ("torch", 8), ("torch", 32))
NAMES = {"ours": "qgraph", "torch": "ActorQ's, in PyTorch"}
GAP = 0.05  # seconds between updates, so that each begins from rest


def latency(name: str, hidden: tuple[int, ...], updates: int, rest: float) -> Table:
    """Medians over `updates`. rest: seconds an actor sleeps between its steps."""
    tf = import_tensorflow_quietly()
    program = dense_policy(hidden)
    variables = {key: tf.Variable(value) for key, value in drawn_weights(program).items()}
    table = Table(
        f"Weight update of {name}, ms from the learner's step to the first action by it",
        {"path": "", "bits": "", "block MB": ".2f", "ms": ".2f", "90 %": ".2f", "of it copy": ".2f",
         "pack": ".2f", "take and act": ".2f"},
    )  # fmt: skip
    for kind, bits in KINDS:
        total, copied, packed, size = _measured(program, variables, kind, bits, updates, rest)
        rest_of_it = median(total) - median(copied) - packed
        row = (NAMES[kind], bits, size / 1e6, median(total), float(np.quantile(total, 0.9)))
        table.add(*row, median(copied), packed, rest_of_it)
    table.notes.append("Learner, quantizer and actor are processes; the learner rests meanwhile.")
    table.notes.append(
        "ActorQ's path (quantize_dynamic, pickle, load_state_dict) has our shared memory, not the "
        "tables that it went through."
    )
    return table


def _measured(
    program: Any, variables: Any, kind: str, bits: int, updates: int, rest: float
) -> tuple[list[float], list[float], float, int]:
    """Milliseconds: in all and of the copy, for each update; of packing on average. Bytes."""
    total, copied = [], []
    with timed_run(kind, program, bits, rest=rest) as timed:
        for version in range(updates + 3):  # the first ones map memory
            for variable in variables.values():
                variable.assign_add(variable * 1e-3)
            begin, before = time.monotonic_ns(), timed.packed()
            timed.publish(variables, version)
            middle = time.monotonic_ns()
            timed.until(
                lambda v=version: timed.numbers()[VERSION] == v and timed.numbers()[MOMENT] > 0
            )
            if version >= 3:
                total.append((timed.numbers()[MOMENT] - begin) / 1e6)
                copied.append((middle - begin) / 1e6)
            else:
                first = timed.packed()
            time.sleep(GAP)
        after = timed.packed()
        del before
        packed = (after[1] - first[1]) / (after[0] - first[0]) * 1e3
        return total, copied, packed, timed.block_size
