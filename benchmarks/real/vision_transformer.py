"""A small vision transformer on handwritten digits, trained here, in float and in 8 bits."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.tables import Table
from qgraph import retrain
from qgraph.choices import Effort
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quantized import Quantized
from qgraph.train.options import Options
from qgraph.verification.verify import verify

SEED, TEST, VALIDATION, CALIBRATION = 2020, 450, 180, 256
TOKENS, WIDTH, HEADS, BLOCKS, CLASSES = 16, 32, 4, 2, 10
EPOCHS, RATE, BATCH = 60, 2e-3, 64
RETRAINED_EPOCHS = 5


class Images(NamedTuple):
    """Images, float32 [n, 8, 8, 1] in [0, 1], and their digits."""

    images: Array
    labels: Array


def digits() -> tuple[Images, Images, Images]:
    """scikit-learn's 1,797 digits in a fixed random order: training, validation, test."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(SEED).permutation(len(found.target))
    images = (found.images[order, :, :, np.newaxis] / 16).astype(np.float32)
    labels = found.target[order].astype(np.int64)
    ends = (0, TEST, TEST + VALIDATION, len(labels))
    test, validation, training = (Images(images[a:b], labels[a:b]) for a, b in pairwise(ends))
    return training, validation, test


def network() -> Any:
    """Patches of 2 x 2 pixels with a learnt position, then blocks of attention and dense layers."""
    import tf_keras as keras

    layers = keras.layers
    image = layers.Input((8, 8, 1))
    x = layers.Conv2D(WIDTH, 2, 2, name="patches")(image)
    x = layers.Reshape((TOKENS, WIDTH))(x)
    x = _positions(keras)(x)
    for _ in range(BLOCKS):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(y, y)])
        y = layers.Dense(2 * WIDTH, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(WIDTH)(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(image, layers.Dense(CLASSES, activation="softmax")(x), name="vit")


def _positions(keras: Any) -> Any:
    """A layer that adds a learnt vector to each token."""

    class Positions(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.table = self.add_weight("table", (TOKENS, WIDTH), initializer="random_normal")

        def call(self, x: Any) -> Any:
            return x + self.table

    return Positions(name="positions")


def trained() -> Any:
    """The network after training in float."""
    import tf_keras as keras

    keras.utils.set_random_seed(SEED)
    training, validation, _ = digits()
    model, steps = network(), EPOCHS * len(training.labels) // BATCH
    rate = keras.optimizers.schedules.CosineDecay(RATE, steps)
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", ["accuracy"])
    model.fit(*training, BATCH, EPOCHS, 0, validation_data=tuple(validation))
    return model


def tables() -> Iterator[Table]:
    training, validation, test = digits()
    calibration = training.images[:CALIBRATION]
    start = time.perf_counter()
    floating = load(trained())
    table = Table(
        "A vision transformer on handwritten digits",
        {"network": "", "accuracy": ".2%", "differ from reference": "", "seconds": ".0f"},
        notes=[
            f"{BLOCKS} blocks of {HEADS} heads, {WIDTH} channels, {TOKENS} tokens; "
            f"{len(training.labels)} digits to train, {TEST} to test",
            "graffitist-int8: 8 bits, one power-of-two scale per tensor; integers from the first "
            "layer to the logits",
        ],
    )
    table.add("float", accuracy(floating, test), "-", time.perf_counter() - start)
    for effort in (Effort.PLAIN, Effort.DEFAULT):
        start = time.perf_counter()
        made = quantize(floating, calibration, effort=effort)
        seconds = time.perf_counter() - start
        table.add(f"int8, {effort}", accuracy(made.graph, test), differences(made), seconds)
    start = time.perf_counter()
    made = _retrained(floating, calibration, training, validation)
    seconds = time.perf_counter() - start
    table.add("int8, retrained", accuracy(made.graph, test), differences(made), seconds)
    yield table


def accuracy(graph: Graph, part: Images) -> float:
    (name,), (output,) = graph.inputs, graph.outputs
    found = evaluate(graph, {name: part.images})[output]
    return float((found.argmax(-1) == part.labels).mean())


def _retrained(
    floating: Graph, calibration: Array, training: Images, validation: Images
) -> Quantized:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "tuned"
        retrain.save(quantize(floating, calibration, mode="retrain"), place)
        options = Options(epochs=RETRAINED_EPOCHS, batch_size=32, seed=SEED)
        retrain.train(place, tuple(training), tuple(validation), options)
        return retrain.finalize(place)


def differences(made: Quantized) -> str:
    """Differences in all forms, and the forms that were compared."""
    with tempfile.TemporaryDirectory() as folder:
        found = verify(made.save(Path(folder) / "out")).compared.tallies
    wrong = sum(tally.wrong for tally in found.values())
    elements = sum(tally.elements for tally in found.values())
    return f"{wrong} of {elements:,} in {', '.join(found)}"
