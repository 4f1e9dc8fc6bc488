"""Accuracy without calibration data, from batch-norm statistics; and detection of foreign
samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import assets
from benchmarks.real.measure import batches, exactness, same_class, sqnr
from benchmarks.real.mobilenet import BACKGROUND, LOGITS, enlarged, scaled
from benchmarks.tables import Table, merged
from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.passes import PassManager
from qgraph.quant.domain import domain_of
from qgraph.recipes import CLEAN
from qgraph.static.search import SAFE

PICTURES = 200


@dataclass(frozen=True)
class Case:
    """A network, samples to calibrate on, and test sets by name (images, and classes or None)."""

    model: Graph
    calibration: Array
    tests: Mapping[str, tuple[Array, Array | None]]
    batch: int
    foreign: Mapping[str, Array]


def tables() -> Iterator[Table]:
    """Accuracy with and without calibration data."""
    for name, case in NETWORKS.items():
        yield _without_data(name, case())


def foreign_tables() -> Iterator[Table]:
    """Samples of several kinds, compared with batch-norm statistics."""
    yield merged(
        "Samples against batch-norm statistics",
        "network",
        ((name, _drifts(name, case())) for name, case in NETWORKS.items()),
    )


def cifar() -> Case:
    images, labels = assets.cifar10_test()
    (train, _), test = assets.cifar10_train(), images.astype(np.float32)
    some, noise = test[:32], np.random.default_rng(0).uniform(0, 255, (32, 32, 32, 3))
    foreign: dict[str, Array] = {
        "512 training images": train[:512], "8 training images": train[:8],
        "1 training image": train[:1], "32 test images": some,
        "divided by 255": some / 255, "as x / 127.5 - 1": some / 127.5 - 1,
        "at half brightness": some / 2, "channels reversed": some[..., ::-1],
        "inverted": 255 - some, "noise": noise,
    }  # fmt: skip
    calibration = train[:512].astype(np.float32)
    return Case(load(assets.cifar10_network()), calibration, {"test": (test, labels)}, 256, foreign)


def mobilenet_v1() -> Case:
    return _at_224(load(assets.mobilenet_v1(), outputs=[LOGITS]), 1, BACKGROUND)


def face_mask() -> Case:
    return _at_224(load(assets.face_mask_network()), 20, None)


def _at_224(model: Graph, batch: int, background: int | None) -> Case:
    (train, _), (test, _) = assets.cifar10_train(), assets.cifar10_test()
    images, labels = assets.imagenet_images()
    photos, pictures = scaled(images), enlarged(test[:PICTURES])
    classes = None if background is None else labels + background
    foreign: dict[str, Array] = {
        "20 photos": photos, "8 photos": photos[:8], "1 photo": photos[:1],
        "20 CIFAR-10 images, enlarged": pictures[:20], "0 to 255": images, "0 to 1": images / 255,
        "at half brightness": photos / 2 - 0.5, "channels reversed": photos[..., ::-1],
        "inverted": -photos, "noise": np.random.default_rng(0).uniform(-1, 1, photos.shape),
    }  # fmt: skip
    tests = {"photos": (photos, classes), "CIFAR-10": (pictures, None)}
    return Case(model, enlarged(train[:64]), tests, batch, foreign)


NETWORKS: Mapping[str, Callable[[], Case]] = {
    "cifar_10_model": cifar,
    "MobileNetV1": mobilenet_v1,
    "face-mask MobileNetV2": face_mask,
}


def _without_data(title: str, case: Case) -> Table:
    columns = {"calibration": ""}
    for name, (_, labels) in case.tests.items():
        columns |= {} if labels is None else {f"{name}: right": ".2%"}
        columns |= {f"{name}: as float": ".1%", f"{name}: SQNR dB": ".1f"}
    columns |= {"differ from reference": "", "seconds": ".1f"}
    table = Table(f"{title}, graffitist-int8, with and without data", columns)
    ((name,), (output,)), model = (case.model.inputs, list(case.model.outputs)), case.model
    program = TFProgram(emit_graph_def(model))
    wanted = {
        key: program.predict(name, x, output, case.batch) for key, (x, _) in case.tests.items()
    }
    count = len(case.calibration)
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        f"{count} images, plain": (case.calibration, {"effort": "plain"}),
        f"{count} images, what mostly helps": (case.calibration, {"plan": SAFE}),
        "none, plain": (None, {"effort": "plain"}),
        "none, fast": (None, {"effort": "fast"}),
        "none, default": (None, {}),
    }
    for way, (data, options) in ways.items():
        start = time.perf_counter()
        result = quantize(model, data, **options)
        seconds = time.perf_counter() - start
        checker, row = Checker(result.graph), []
        for key, (x, labels) in case.tests.items():
            found = checker.program.predict(name, x, output, case.batch)
            row += [] if labels is None else [float((found.argmax(1) == labels).mean())]
            row += [same_class(found, wanted[key]), sqnr(wanted[key], found)]
        few = next(iter(case.tests.values()))[0][: 2 * case.batch if case.batch == 1 else 16]
        same = exactness(checker, batches(name, few, min(case.batch, len(few))))
        table.add(way, *row, str(same), seconds)
    for key, (x, labels) in case.tests.items():
        right = (
            ""
            if labels is None
            else f", float is right on {(wanted[key].argmax(1) == labels).mean():.2%}"
        )
        table.notes.append(f"{key}: {len(x):,} images{right}")
    return table


def _drifts(title: str, case: Case) -> Table:
    table = Table(
        f"{title}: samples against batch-norm statistics",
        {"samples": "", "means, first": ".2f", "means, median": ".2f", "deviations, first": ".2f",
         "deviations, median": ".2f", "warned": "", "cause": ""},
        notes=["means in deviations off, deviations in doublings, medians over channels"],
    )  # fmt: skip
    graph = case.model.copy()
    PassManager(CLEAN).run(graph)
    for name, x in case.foreign.items():
        found = domain_of(graph, {graph.inputs[0]: np.ascontiguousarray(x, np.float32)})
        assert found is not None
        first, typical = found.first, found.typical
        table.add(name, first.mean, typical.mean, first.deviation, typical.deviation,
                  "yes" if found.warning else "no", found.cause or "-")  # fmt: skip
    return table
