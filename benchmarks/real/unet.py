"""A small U-Net that finds the ink of digits in noise, trained here, in float and in 8 bits."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.real.vision_transformer import Images, differences, digits
from benchmarks.tables import Table
from qgraph import retrain
from qgraph.choices import Effort, LossKind
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quantized import Quantized
from qgraph.train.options import Options

SEED, SIZE, SCALE, NOISE, BARS = 2021, 24, 2, 0.3, 4
CHANNELS = (16, 32, 48)
EPOCHS, RATE, BATCH, CALIBRATION = 12, 3e-3, 32, 256
RETRAINED_EPOCHS = 3


class Scenes(NamedTuple):
    """Images [n, 24, 24, 1], and 1 where a digit has ink."""

    images: Array
    ink: Array


def scenes(part: Images, seed: int) -> Scenes:
    """Each digit enlarged, at a random place, with bars as bright as ink, in noise."""
    rng, count = np.random.default_rng(seed), len(part.labels)
    ink = np.zeros((count, SIZE, SIZE, 1), np.float32)
    images = rng.normal(0, NOISE, ink.shape)
    large = part.images.repeat(SCALE, 1).repeat(SCALE, 2)
    side = large.shape[1]
    for i, (digit, target) in enumerate(zip(large, ink, strict=True)):
        y, x = rng.integers(0, SIZE - side + 1, 2)
        target[y : y + side, x : x + side] = digit > 0.5
        for row, column in rng.integers(0, SIZE, (BARS, 2)):
            images[i, row, column:] += 1 * (1 - target[row, column:])
        images[i] += target
    return Scenes(images.astype(np.float32), ink)


def network() -> Any:
    """Two halvings; back by bilinear interpolation and by a transposed convolution."""
    import tf_keras as keras

    layers = keras.layers

    def block(x: Any, channels: int) -> Any:
        x = layers.Conv2D(channels, 3, padding="same")(x)
        x = layers.Activation("swish")(layers.GroupNormalization(4)(x))
        return layers.Conv2D(channels, 3, padding="same", activation="relu")(x)

    first, second, third = CHANNELS
    image = layers.Input((SIZE, SIZE, 1))
    high = block(image, first)
    middle = block(layers.MaxPool2D()(high), second)
    low = block(layers.MaxPool2D()(middle), third)
    up = layers.UpSampling2D(interpolation="bilinear")(low)
    middle = block(layers.Concatenate()([up, middle]), second)
    up = layers.Conv2DTranspose(first, 3, 2, "same", activation="relu")(middle)
    high = block(layers.Concatenate()([up, high]), first)
    return keras.Model(image, layers.Conv2D(1, 1, activation="sigmoid")(high), name="unet")


def trained(training: Scenes) -> Any:
    """The network after training in float."""
    import tf_keras as keras

    keras.utils.set_random_seed(SEED)
    model, steps = network(), EPOCHS * len(training.ink) // BATCH
    rate = keras.optimizers.schedules.CosineDecay(RATE, steps)
    model.compile(keras.optimizers.Adam(rate), "binary_crossentropy")
    model.fit(*training, BATCH, EPOCHS, 0)
    return model


def tables() -> Iterator[Table]:
    training, validation, test = (scenes(p, SEED + i) for i, p in enumerate(digits()))
    calibration = training.images[:CALIBRATION]
    start = time.perf_counter()
    floating = load(trained(training))
    table = Table(
        "A U-Net on digits in noise",
        {"network": "", "IoU": ".2%", "differ from reference": "", "seconds": ".0f"},
        notes=[
            f"{len(CHANNELS)} levels of {', '.join(map(str, CHANNELS))} channels with group norms; "
            f"{len(training.ink)} images of {SIZE} x {SIZE} pixels to train, {len(test.ink)} to "
            "test",
            "IoU: pixels found and of ink, as a share of those found or of ink",
            "graffitist-int8: 8 bits, one power-of-two scale per tensor; integers from the first "
            "layer to the last",
        ],
    )
    table.add("float", overlap(floating, test), "-", time.perf_counter() - start)
    for effort in (Effort.PLAIN, Effort.DEFAULT):
        start = time.perf_counter()
        made = quantize(floating, calibration, effort=effort)
        seconds = time.perf_counter() - start
        table.add(f"int8, {effort}", overlap(made.graph, test), differences(made), seconds)
    start = time.perf_counter()
    made = _retrained(floating, training, validation)
    seconds = time.perf_counter() - start
    table.add("int8, retrained", overlap(made.graph, test), differences(made), seconds)
    yield table


def _retrained(floating: Graph, training: Scenes, validation: Scenes) -> Quantized:
    """Towards the results of the float network, without labels."""
    (name,) = floating.inputs
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "tuned"
        made = quantize(floating, training.images[:CALIBRATION], mode="retrain")
        retrain.save(made, place)
        options = Options(epochs=RETRAINED_EPOCHS, batch_size=BATCH, seed=SEED, loss=LossKind.MSE)
        retrain.train(place, {name: training.images}, {name: validation.images}, options)
        return retrain.finalize(place)


def overlap(graph: Graph, part: Scenes) -> float:
    """Intersection over union of the pixels that are found and those of ink."""
    (name,), (output,) = graph.inputs, graph.outputs
    found = evaluate(graph, {name: part.images})[output] > 0.5
    ink = part.ink > 0
    return float((found & ink).sum() / (found | ink).sum())
