"""Train the float network, one epoch at a time; a run that was stopped continues."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.families.data import Part, Split
from benchmarks.families.networks import Network
from benchmarks.families.train import accuracy, freeze, mirrored
from benchmarks.mobilenet_v2.clock import Clock
from benchmarks.mobilenet_v2.network import mobilenet_v2
from qgraph.backends.tf.program import TFProgram
from qgraph.files import write_whole
from qgraph.ir.types import Array

PEAK_RATE, WARM_UP = 4e-3, 0.2  # the share of steps in which the rate rises
WEIGHT_DECAY = 1e-2
SHIFT = 4  # the most pixels that images are moved by


@dataclass(frozen=True)
class FloatRun:
    """The float network to be trained, and the length of the training."""

    width: float = 1.0
    epochs: int = 30
    batch_size: int = 128
    seed: int = 1


def trained(run: FloatRun, data: Split, folder: Path, clock: Clock) -> Path:
    """The frozen network in `folder`, with its facts as JSON beside it. If it is missing, it is
    trained.

    Raises OutOfTime after the epoch in which the time ended.
    """
    path, facts = folder / "float.pb", folder / "float.json"
    asked = asdict(run)
    if path.exists() and json.loads(facts.read_text("utf-8"))["run"] == asked:
        return path
    network = _train(run, data, folder, clock)
    frozen = freeze(network)
    found = {
        "run": asked,
        "parameters": network.count_params(),
        "validation": accuracy(TFProgram(frozen), data.validation),
    }
    write_whole(facts, (json.dumps(found, indent=1) + "\n").encode())
    write_whole(path, frozen.SerializeToString(deterministic=True))
    return path


def _train(run: FloatRun, data: Split, folder: Path, clock: Clock) -> Network:
    import tensorflow as tf
    import tf_keras

    tf_keras.backend.clear_session()
    tf_keras.utils.set_random_seed(run.seed)
    network = mobilenet_v2(run.width)
    steps = run.epochs * (len(data.training.labels) // run.batch_size)
    rate = tf_keras.optimizers.schedules.CosineDecay(
        PEAK_RATE / 10,
        int(steps * (1 - WARM_UP)),
        warmup_target=PEAK_RATE,
        warmup_steps=int(steps * WARM_UP),
    )
    optimizer = tf_keras.optimizers.AdamW(rate, weight_decay=WEIGHT_DECAY)
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(optimizer, loss, metrics=["accuracy"])
    optimizer.build(network.trainable_variables)
    epoch = tf.Variable(0, trainable=False)
    state = tf.train.Checkpoint(network=network, optimizer=optimizer, epoch=epoch)
    name = "-".join(f"{key}{value:g}" for key, value in asdict(run).items())
    kept = tf.train.CheckpointManager(state, folder / "float" / name, max_to_keep=1)
    if kept.latest_checkpoint:
        state.restore(kept.latest_checkpoint).assert_consumed()
    while int(epoch) < run.epochs:
        images, labels = _shuffled(data.training, run, int(epoch))
        history: Any = network.fit(
            images, labels, run.batch_size, epochs=1, shuffle=False, verbose=0
        ).history
        epoch.assign_add(1)
        kept.save()
        line = f"float, epoch {int(epoch)} of {run.epochs}: training {history['accuracy'][0]:.2%}"
        print(line, flush=True)
        if int(epoch) < run.epochs:
            clock.check(line)
    return network


def _shuffled(part: Part, run: FloatRun, epoch: int) -> tuple[Array, Array]:
    """The images of an epoch in whole batches: half are mirrored, and all are moved a little."""
    rng = np.random.default_rng([run.seed, epoch])
    order = rng.permutation(len(part.labels))
    order = order[: max(len(order) // run.batch_size, 1) * run.batch_size]
    return moved(mirrored(part.images[order], rng), rng), part.labels[order]


def moved(images: Array, rng: np.random.Generator) -> Array:
    """Each image moved by up to `SHIFT` pixels in each direction, with zeros at the edges."""
    count, height, width, _ = images.shape
    wide = np.pad(images, ((0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)))
    made = np.empty_like(images)
    for i, (y, x) in enumerate(rng.integers(0, 2 * SHIFT + 1, (count, 2))):
        made[i] = wide[i, y : y + height, x : x + width]
    return made
