"""Recurrent networks of Keras, trained on the rows of small digits, by effort."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.real.by_effort import EFFORTS
from benchmarks.real.measure import batches, exactness, same_class, sqnr
from benchmarks.registry import cache
from benchmarks.tables import Table
from qgraph.backends.tf.agreement import Checker
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.types import Array

TRAINED, CALIBRATION, COMPARED = 1200, 256, 16
UNITS, EPOCHS, SEED = 32, 60, 0
LAYERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "LSTM": lambda layers: layers.LSTM(UNITS),
        "GRU": lambda layers: layers.GRU(UNITS),
        "SimpleRNN": lambda layers: layers.SimpleRNN(UNITS),
        "Bidirectional LSTM": lambda layers: layers.Bidirectional(layers.LSTM(UNITS // 2)),
    }
)


def tables() -> Iterator[Table]:
    images, labels = digits()
    table = Table(
        "Recurrent networks on rows of digits",
        {"network": "", "effort": "", "right, float": ".1%", "right, 8 bits": ".1%",
         "as float": ".1%", "SQNR dB": ".1f", "differ from reference": "", "seconds": ".1f"},
        notes=["graffitist-int8: 8 bits, one power-of-two scale per tensor, cell states in 16 bits",
               f"digits of scikit-learn, 8 steps of 8 pixels: {TRAINED} to train, {CALIBRATION} of "
               f"them to calibrate, {len(images) - TRAINED} others for the test",
               f"compared with the integer reference on {COMPARED} images"],
    )  # fmt: skip
    for name in LAYERS:
        _measure(name, images, labels, table)
    yield table


def digits() -> tuple[Array, Array]:
    """The digits of scikit-learn in a random order, [n, 8, 8] from 0 to 1, and their labels."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(SEED).permutation(len(found.target))
    return (found.images[order] / 16).astype(np.float32), found.target[order]


def trained(name: str, images: Array, labels: Array) -> Path:
    """The network `name`, from the cache, or trained in some seconds."""
    import tf_keras as keras

    path = cache() / "recurrent" / f"{name.lower().replace(' ', '_')}.keras"
    if path.exists():
        return path
    keras.utils.set_random_seed(SEED)
    x = keras.layers.Input((8, 8), name="rows")
    model = keras.Model(x, keras.layers.Dense(10)(LAYERS[name](keras.layers)(x)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    model.fit(images[:TRAINED], labels[:TRAINED], epochs=EPOCHS, verbose=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    model.save(path)
    return path


def _measure(name: str, images: Array, labels: Array, table: Table) -> None:
    model = load(trained(name, images, labels))
    (entry,), (output,) = model.inputs, model.outputs
    test, wanted = images[TRAINED:], labels[TRAINED:]
    floats = evaluate(model, {entry: test})[output]
    for effort in EFFORTS:
        start = time.perf_counter()
        made = quantize(model, images[:CALIBRATION], effort=effort)
        seconds = time.perf_counter() - start
        found = evaluate(made.graph, {entry: test})[output]
        same = exactness(Checker(made.graph), batches(entry, test[:COMPARED], COMPARED))
        table.add(
            name, effort, _right(floats, wanted), _right(found, wanted), same_class(found, floats),
            sqnr(floats, found), str(same), seconds,
        )  # fmt: skip


def _right(outputs: Array, labels: Array) -> float:
    return float((outputs.argmax(-1) == labels).mean())
