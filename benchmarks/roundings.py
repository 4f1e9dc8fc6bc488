"""The cost of rounding `double` beside the others: ``python -m benchmarks.roundings``.

The engine has no chain in 16 bits for `double`, and training has no fused epilogue for it, so both
compute the same numbers in another way. Each network is quantized once for each rounding and
profile; then whole runs of the engine and whole training steps take turns. Times are medians of
processor time on one thread of the engine and all threads of TensorFlow. Ratios are to `half_even`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Annotated

import numpy as np
import typer

from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.compiler import quantize
from qgraph.frontends import load, load_keras
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array, Rounding
from qgraph.program import lower
from qgraph.quant.profile import Profile, load_profile
from qgraph.runtime import Engine

ROUNDINGS = (Rounding.HALF_EVEN, Rounding.HALF_AWAY, Rounding.DOUBLE)
PROFILES = ("graffitist-int8", "int32-bias")
CLASSES, RATE = 10, 1e-6
WARM_UP = 3
DIGITS = Path(__file__).resolve().parents[1] / "examples/digits/digits.pb"

Step = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A network, the shape of its images, and the batch sizes of the engine and of a training
    step.
    """

    load: Callable[[], Graph]
    shape: tuple[int, int, int]
    batch: int

    def images(self) -> Array:
        size = (self.batch, *self.shape)
        return np.random.default_rng(0).uniform(0, 1, size).astype(np.float32)

    def labels(self) -> Array:
        return np.random.default_rng(1).integers(0, CLASSES, self.batch)


def cifar_like() -> Graph:
    """Six convolutions with 32 to 128 channels and ReLU, not trained."""
    import tf_keras

    tf_keras.utils.set_random_seed(0)
    layers = tf_keras.layers
    x = image = tf_keras.Input((32, 32, 3))
    for channels in (32, 64, 128):
        for _ in range(2):
            x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D()(x)
    return load_keras(tf_keras.Model(image, layers.Dense(CLASSES)(layers.Flatten()(x))))


CASES: Mapping[str, Case] = {
    "digits": Case(partial(load, DIGITS), (8, 8, 1), 64),
    "cifar-like": Case(cifar_like, (32, 32, 3), 32),
}


def engine_run(case: Case, profile: Profile) -> Step:
    """One run of the engine on one thread, from codes to codes."""
    graph = quantize(case.load(), case.images(), profile=profile, effort="plain").graph
    engine = Engine.of(lower(graph), threads=1)
    tensor = engine.tensors[engine.entries[0]]
    drawn = np.random.default_rng(0).integers(
        tensor.low, tensor.high + 1, (case.batch, *case.shape)
    )
    codes = {tensor.name: drawn.astype(tensor.dtype)}
    return lambda: engine.run_codes(codes)


def training_step(case: Case, profile: Profile) -> Step:
    """One step of retraining: forward, backward, update."""
    import tensorflow as tf

    from qgraph.train.data import training_data
    from qgraph.train.folded import norms_of
    from qgraph.train.loop import Trainer
    from qgraph.train.options import Options

    images, labels = case.images(), case.labels()
    result = quantize(case.load(), images, profile=profile, mode="retrain")
    data = training_data((images, labels), result.graph, case.batch, 0)
    options = Options(batch_size=case.batch, weight_rate=RATE)
    norms = norms_of(result.floating)
    steps = Trainer(result.graph, result.floating, norms, data, options=options).steps
    fed, wanted = {result.graph.inputs[0]: tf.constant(images)}, tf.constant(labels)
    return lambda: steps.train(fed, wanted)[0].numpy()


TASKS: Mapping[str, Callable[[Case, Profile], Step]] = {
    "engine": engine_run,
    "training": training_step,
}


def milliseconds(steps: Mapping[Rounding, Step], rounds: int) -> dict[Rounding, float]:
    """The median processor time of each, taken in turns."""
    times: dict[Rounding, list[float]] = {rounding: [] for rounding in steps}
    for number in range(-WARM_UP, rounds):
        for rounding, step in steps.items():
            start = process_time()
            step()
            if number >= 0:
                times[rounding].append(1e3 * (process_time() - start))
    return {rounding: median(taken) for rounding, taken in times.items()}


def main(
    rounds: Annotated[int, typer.Option(help="Turns of each rounding.")] = 60,
    only: Annotated[str, typer.Option(help="Only networks whose name contains this.")] = "",
    json_file: JsonFile = None,
) -> None:
    """Print a row for each network, profile and task."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    columns = {"network": "", "profile": "", "task": ""}
    columns |= {f"{rounding}, ms": ".3g" for rounding in ROUNDINGS}
    columns |= {f"{rounding}, ratio": ".2f" for rounding in ROUNDINGS[1:]}
    table = Table("rounding of layers", columns)
    for name, case in CASES.items():
        for profile in PROFILES if only in name else ():
            for task, make in TASKS.items():
                steps = {
                    rounding: make(case, replace(load_profile(profile), rounding=rounding))
                    for rounding in ROUNDINGS
                }
                found = milliseconds(steps, rounds)
                ratios = [found[r] / found[ROUNDINGS[0]] for r in ROUNDINGS[1:]]
                table.add(name, profile, task, *found.values(), *ratios)
    table.notes.append(f"medians of processor time, {rounds} runs in turns")
    report("benchmarks.roundings", [table], json_file)


if __name__ == "__main__":
    typer.run(main)
