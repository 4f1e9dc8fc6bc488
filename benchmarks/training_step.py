"""Time whole training steps: ``python -m benchmarks.training_step``.

A step is forward, backward and update, compiled, on one batch in memory. Steps of one network have
the same warm-up and take turns in one process; ratios are between times of the same run. The table
has the median wall time and the processor time of all threads, which other programs disturb less.
Peak memory is measured in a separate process for each step, above the memory before its network was
built, with batches eight times as large; otherwise the process itself would need more memory than
the tensors of some networks. TFMOT is measured if it is installed (`pip install
tensorflow-model-optimization`).
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.families import networks
from benchmarks.result import add_json_option, report, versions
from benchmarks.tables import Table

FLOAT, FLOAT_FROZEN = "float", "float, batch norms frozen"
QUANTIZED, QUANTIZED_FROZEN = "qgraph", "qgraph, batch norms frozen"
FOLDED = "qgraph without quantizers, batch norms frozen"
TFMOT = "TFMOT"
VARIANTS = (FLOAT, FLOAT_FROZEN, QUANTIZED, QUANTIZED_FROZEN, FOLDED, TFMOT)
XLA = ", under XLA"
ON_GPUS = (FLOAT_FROZEN, FLOAT_FROZEN + XLA, QUANTIZED_FROZEN, QUANTIZED_FROZEN + XLA)
PACKAGES = ("tensorflow", "tf-keras", "tensorflow-model-optimization")
CLASSES, RATE = 10, 1e-6
WARM_UP, STEPS_FOR_MEMORY, BATCHES_FOR_MEMORY = 3, 5, 8
MEGABYTE = 1 << 20

Network = Any
Step = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """A Keras network whose outputs are CLASSES probabilities or logits, and its training batch."""

    make: Callable[[], Network]
    shape: tuple[int, int, int]
    batch: int
    largest: float = 1.0
    logits: bool = False

    def images(self) -> Any:
        """Noise, [batch, *shape]."""
        size = (self.batch, *self.shape)
        return np.random.default_rng(0).uniform(0, self.largest, size).astype(np.float32)

    def labels(self) -> Any:
        """Classes, [batch]."""
        return np.random.default_rng(1).integers(0, CLASSES, self.batch)


def cifar_10_model() -> Network:
    import tf_keras

    from benchmarks import assets

    return tf_keras.models.load_model(assets.cifar10_network(), compile=False)


def mobilenet() -> Network:
    """The network of Keras, not trained."""
    from tf_keras.applications import MobileNet

    return MobileNet((128, 128, 3), alpha=0.25, weights=None, classes=CLASSES)


CASES: Mapping[str, Case] = {
    "cifar_10_model": Case(cifar_10_model, (32, 32, 3), 128, largest=255.0),
    "MobileNetV1 0.25/128": Case(mobilenet, (128, 128, 3), 32),
    "ResNet of the families": Case(networks.resnet, (28, 28, 1), 128, logits=True),
}


# -- steps ------------------------------------------------------------------------------------


def step_of(variant: str, case: Case) -> Step:
    """One training step of the network, to be called repeatedly."""
    xla, variant = variant.endswith(XLA), variant.removesuffix(XLA)
    if variant in (FLOAT, FLOAT_FROZEN):
        return _keras_step(case.make(), case, training=variant == FLOAT, xla=xla)
    if variant == TFMOT:
        return _keras_step(by_tfmot(case.make()), case, training=True, xla=xla)
    return _qgraph_step(case, variant, xla=xla)


def _keras_step(network: Network, case: Case, *, training: bool, xla: bool) -> Step:
    """Adam on the cross entropy; batch norms work as in inference unless `training`."""
    import tensorflow as tf
    import tf_keras

    images, labels = tf.constant(case.images()), tf.constant(case.labels())
    variables = network.trainable_variables
    optimizer = tf_keras.optimizers.Adam(RATE, jit_compile=False)
    loss_of = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=case.logits)
    optimizer.build(variables)

    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, network(images, training=training))
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    compiled = tf.function(step, autograph=False, jit_compile=xla)
    return lambda: compiled(images, labels).numpy()


def _qgraph_step(case: Case, variant: str, *, xla: bool) -> Step:
    import tensorflow as tf

    from qgraph.compiler import quantize
    from qgraph.frontends import load_keras
    from qgraph.train.data import training_data
    from qgraph.train.folded import norms_of
    from qgraph.train.loop import Trainer
    from qgraph.train.options import Options

    images, labels = case.images(), case.labels()
    result = quantize(load_keras(case.make()), images[:8], mode="retrain")
    graph = result.floating if variant == FOLDED else result.graph
    norms = norms_of(result.floating)
    data = training_data((images, labels), graph, case.batch, 0)
    options = Options(batch_size=case.batch, weight_rate=RATE)
    trainer = Trainer(graph, result.floating, norms, data, options=options)
    steps = trainer.steps
    steps.norms_frozen = variant != QUANTIZED
    if xla:
        steps.compile_with_xla()
    fed, wanted = {graph.inputs[0]: tf.constant(images)}, tf.constant(labels)
    return lambda: steps.train(fed, wanted)[0].numpy()


def by_tfmot(network: Network) -> Network:
    """The network with TFMOT's quantizers. Batch norms that TFMOT has no pattern for stay float."""
    import tf_keras
    from tensorflow_model_optimization.quantization import keras as tfmot

    class InFloat(tfmot.QuantizeConfig):  # type: ignore[misc]
        def get_weights_and_quantizers(self, layer: Any) -> list[Any]:
            return []

        def get_activations_and_quantizers(self, layer: Any) -> list[Any]:
            return []

        def set_quantize_weights(self, layer: Any, quantize_weights: Any) -> None:
            pass

        def set_quantize_activations(self, layer: Any, quantize_activations: Any) -> None:
            pass

        def get_output_quantizers(self, layer: Any) -> list[Any]:
            return []

        def get_config(self) -> dict[str, Any]:
            return {}

    def annotated(layer: Any) -> Any:
        if isinstance(layer, tf_keras.layers.BatchNormalization):
            return tfmot.quantize_annotate_layer(layer, quantize_config=InFloat())
        return tfmot.quantize_annotate_layer(layer)

    try:
        return tfmot.quantize_model(network)
    except RuntimeError:
        marked = tf_keras.models.clone_model(network, clone_function=annotated)
        with tf_keras.utils.custom_object_scope({"InFloat": InFloat}):
            return tfmot.quantize_apply(marked)


# -- measuring --------------------------------------------------------------------------------


def milliseconds(case: Case, variants: Iterable[str], rounds: int) -> dict[str, list[float]]:
    """Median times of each step, wall clock and processor; steps take turns."""
    steps = {variant: step_of(variant, case) for variant in variants}
    times: dict[str, list[tuple[float, float]]] = {variant: [] for variant in steps}
    for number in range(-WARM_UP, rounds):
        for variant, step in steps.items():
            start = time.perf_counter(), time.process_time()
            step()
            taken = time.perf_counter() - start[0], time.process_time() - start[1]
            if number >= 0:
                times[variant].append(taken)
    return {
        variant: [1e3 * statistics.median(clock) for clock in zip(*taken, strict=True)]
        for variant, taken in times.items()
    }


def peak_megabytes(case: Case, variant: str) -> float:
    """The peak memory of the process in some steps of large batches, above its memory before."""
    import tensorflow as tf
    import tf_keras

    case = replace(case, batch=BATCHES_FOR_MEMORY * case.batch)
    tf_keras.Sequential([tf_keras.layers.Dense(1)]).predict(tf.zeros([1, 1]), verbose=0)
    before = _held("VmRSS")
    step = step_of(variant, case)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak that building the network had
    for _ in range(STEPS_FOR_MEMORY):
        step()
    return _held("VmHWM") - before


def _held(what: str) -> float:
    status = Path("/proc/self/status").read_text()
    (found,) = re.findall(rf"^{what}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found) * 1024 / MEGABYTE


def in_a_process(what: str, *arguments: object) -> Any:
    """The output of one measurement in a new process."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.training_step",
        "--one",
        what,
        *map(str, arguments),
    ]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1", **os.environ}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def table(names: Sequence[str], rounds: int, jobs: int = 1) -> Table:
    """Times and peak memory of each step, and their ratios to the float step.

    jobs: how many processes measure memory at a time; times are measured before.
    """
    measures = ("ms", "processor ms", "peak MB")
    columns = {c: how for m in measures for c, how in ((m, ".0f"), (f"{m}, of float", ".2f"))}
    made = Table(
        "Training step",
        {"network": "", "step": "", **columns},
        notes=[
            f"times of one batch, medians of {rounds} in turns; peak memory with batches "
            f"{BATCHES_FOR_MEMORY} times as large, in a separate process"
        ],
    )
    variants = [v for v in VARIANTS if v != TFMOT or versions(PACKAGES[-1:])]
    times = {name: in_a_process("time", name, rounds) for name in names}
    each = list(itertools.product(names, variants))
    with ThreadPoolExecutor(jobs) as pool:
        peaks = pool.map(lambda pair: in_a_process("memory", *pair), each)
        memory = dict(zip(each, peaks, strict=True))
    for name, variant in each:
        of_both = zip(
            (*times[name][variant], memory[name, variant]),
            (*times[name][FLOAT], memory[name, FLOAT]),
            strict=True,
        )
        made.add(name, variant, *(cell for x, of in of_both for cell in (x, x / of)))
    return made


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=1, help="processes that measure memory")
    add_json_option(parser)
    given = parser.parse_args()
    if given.one is None:
        made = [table(given.only, given.rounds, given.jobs)]
        report("benchmarks.training_step", made, given.json, packages=PACKAGES)
        return
    what, name, last = given.one
    variants = [v for v in VARIANTS if v != TFMOT or versions(PACKAGES[-1:])]
    if what == "time":
        found: Any = milliseconds(CASES[name], variants, int(last))
    else:
        found = peak_megabytes(CASES[name], last)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
