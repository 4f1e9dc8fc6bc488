"""Time from the end of a learner's step to the first action with its weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.broadcast.policies import dense_policy, drawn_weights
from benchmarks.broadcast.processes import MOMENT, VERSION
from benchmarks.broadcast.runs import Timed, timed_run
from benchmarks.tables import Table
from qgraph.quiet import import_tensorflow_quietly
from qgraph.rl.actor import ActorProgram

KINDS = (
    ("ours", 8), ("ours", 4), ("ours", 16), ("ours", 32),
    ("direct", 8), ("direct", 4), ("direct", 16), ("direct", 32),
    ("torch", 8), ("torch", 32),
)  # fmt: skip
NAMES = {"ours": "qgraph", "direct": "qgraph, the learner packs", "torch": "ActorQ's, in PyTorch"}
BATCH = 256  # samples in a step of the learner
FIRST = 3  # updates that map memory, which are not counted
NOTES = (
    f"Learner, quantizer and actor are processes. Before each update the learner takes a step of "
    f"gradient descent with {BATCH} observations; then it sleeps until an actor acts by the new "
    "weights.",
    "Packing begins while weights are still copied, so the two times overlap and slow each other "
    "down.",
    "If the learner packs, `copy` is the time that this takes in the learner.",
    "ActorQ's path (quantize_dynamic, pickle, load_state_dict) uses the shared memory of qgraph "
    "here, not its own tables.",
)


@dataclass
class Times:
    """Milliseconds of each update, by part."""

    total: list[float] = field(default_factory=list)
    copy: list[float] = field(default_factory=list)
    pack: list[float] = field(default_factory=list)


def latency(name: str, hidden: tuple[int, ...], updates: int, rest: float) -> Table:
    """Medians over `updates`. rest: seconds that an actor sleeps between its steps."""
    import_tensorflow_quietly()
    import tensorflow as tf

    program = dense_policy(hidden)
    variables = {key: tf.Variable(value) for key, value in drawn_weights(program).items()}
    columns = {"path": "", "bits": "", "block MB": ".2f", "ms": ".2f", "90 %": ".2f"}
    table = Table(
        f"Weight update of {name}: from the learner's step to the first action by it",
        {**columns, "copy": ".2f", "pack": ".2f"},
        notes=list(NOTES),
    )
    for kind, bits in KINDS:
        with timed_run(kind, program, bits, rest=rest) as timed:
            times = _measured(timed, variables, learner(program, variables), updates)
        total = median(times.total)
        row = (NAMES[kind], bits, timed.block_size / 1e6, total)
        parts = (median(times.copy), mean(times.pack))
        table.add(*row, float(np.quantile(times.total, 0.9)), *parts)
    return table


def learner(program: ActorProgram, variables: Mapping[str, Any]) -> Callable[[], object]:
    """A step of gradient descent, which leaves weights and caches as a learner does."""
    import tensorflow as tf

    generator = tf.random.Generator.from_seed(1)
    functions = {"relu": tf.nn.relu, "tanh": tf.nn.tanh}

    def step() -> None:
        value = generator.normal((BATCH, *program.shape))
        with tf.GradientTape() as tape:
            for layer in program.steps:
                kernel, bias = (variables[name] for name in layer.weights)
                value = functions[layer.activation](tf.matmul(value, kernel) + bias)
            loss = tf.reduce_mean(tf.square(value))
        names = list(variables)
        gradients = tape.gradient(loss, [variables[name] for name in names])
        for name, gradient in zip(names, gradients, strict=True):
            variables[name].assign_sub(1e-4 * gradient)

    made: Callable[[], object] = tf.function(step)
    return made


def _measured(
    timed: Timed, variables: Mapping[str, Any], learn: Callable[[], object], updates: int
) -> Times:
    times, shown = Times(), timed.numbers()

    def acted_with(version: int) -> bool:
        return bool(shown[VERSION] == version)

    for version in range(1, updates + FIRST + 1):
        learn()
        packed = timed.packed()[1]
        begin = time.monotonic_ns()
        timed.publish(variables, version)
        end = time.monotonic_ns()
        timed.until(partial(acted_with, version))
        if version > FIRST:
            times.total.append((shown[MOMENT] - begin) / 1e6)
            times.copy.append((end - begin) / 1e6)
            times.pack.append((timed.packed()[1] - packed) * 1e3)
    return times
