"""`nudity`'s MobileNetV1: the folded graph beside the file, and int8 by calibration method."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks import assets
from benchmarks.real.measure import (
    METHODS,
    batches,
    exactness,
    kept_float,
    profiles,
    same_class,
    sqnr,
    timed,
)
from benchmarks.tables import Table
from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.cast import cast_floats
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT

LOGITS = "MobilenetV1/Predictions/Reshape"
OUTPUTS = [LOGITS, "final_result"]
CALIBRATION, AGREEMENT, IN_FLOAT64 = 64, 200, 4
BACKGROUND = 1  # class 0 of 1001


def tables() -> Iterator[Table]:
    model = load(assets.mobilenet_v1(), outputs=OUTPUTS)
    images, labels = assets.imagenet_images()
    photos = scaled(images)
    yield folding(model, photos)
    yield static(model, photos, labels + BACKGROUND)


def scaled(images: Array) -> Array:
    return images.astype(np.float32) / np.float32(127.5) - np.float32(1)


def enlarged(images: Array, size: int = 224) -> Array:
    """Images [n, h, w, 3], uint8, resized (bicubic) and scaled."""
    from PIL import Image

    resized = [Image.fromarray(i).resize((size, size), Image.Resampling.BICUBIC) for i in images]
    return scaled(np.stack([np.asarray(image) for image in resized]))


def folding(model: Graph, photos: Array) -> Table:
    folded = model.copy()
    PassManager(FLOAT).run(folded)
    table = Table(
        f"MobileNetV1: the folded graph against the file, {len(photos)} photos",
        {"output": "", "arithmetic": "", "largest difference": ".2e", "of the largest": ".2e"},
        notes=[f"float64: cast, then folded; both graphs in numpy, {IN_FLOAT64} photos"],
    )
    file, ours = TFProgram(assets.mobilenet_v1()), TFProgram(emit_graph_def(folded))
    exact = [cast_floats(model, "float64") for _ in range(2)]
    PassManager(FLOAT).run(exact[1])
    feeds = [{"input": photo[None]} for photo in photos.astype(np.float64)[:IN_FLOAT64]]
    in_float64 = [[evaluate(graph, f) for f in feeds] for graph in exact]
    for name in OUTPUTS:
        pair = [p.predict("input", photos, name, 1) for p in (file, ours)]
        table.add(name, "float32, TensorFlow", *_difference(*pair))
        pair = [np.concatenate([v[name] for v in values]) for values in in_float64]
        table.add(name, "float64, numpy", *_difference(*pair))
    return table


def _difference(wanted: Array, found: Array) -> tuple[float, float]:
    largest = float(np.abs(found - wanted).max())
    return largest, largest / float(np.abs(wanted).max())


def static(model: Graph, photos: Array, labels: Array) -> Table:
    (train, _), (test, _) = assets.cifar10_train(), assets.cifar10_test()
    calibration, pictures = enlarged(train[:CALIBRATION]), enlarged(test[:AGREEMENT])
    table = Table(
        "MobileNetV1, static",
        {"profile": "", "method": "", "top 1": "d", "top 5": "d", "as float, photos": ".0%",
         "as float, CIFAR-10": ".1%", "logits SQNR dB": ".1f", "differ from reference": "",
         "quantize s": ".1f"},
        notes=[f"top 1 and top 5: right ones of {len(photos)} photos",
               f"CIFAR-10: {AGREEMENT} test images, enlarged",
               f"calibrated on {CALIBRATION} CIFAR-10 training images, enlarged",
               f"compared with the reference on {len(photos)} photos for {METHODS[0]}, else on 2"],
    )  # fmt: skip
    program = TFProgram(assets.mobilenet_v1())
    wanted = [program.predict("input", x, LOGITS, 1) for x in (photos, pictures)]
    table.add("float32", None, *_right(wanted[0], labels), 1.0, 1.0, None, None, None)
    for profile in profiles():
        for method in METHODS:
            result, seconds = timed(model, calibration, profile, method)
            checker = Checker(result.graph)
            found = [checker.program.predict("input", x, LOGITS, 1) for x in (photos, pictures)]
            same = exactness(checker, batches("input", _compared(photos, method), 1))
            agreement = [same_class(a, b) for a, b in zip(found, wanted, strict=True)]
            noise = sqnr(wanted[1], found[1])
            right = _right(found[0], labels)
            table.add(profile.name, method, *right, *agreement, noise, str(same), seconds)
    table.notes.append(f"stays float: {kept_float(result)}")
    return table


def _compared(photos: Array, method: str) -> Array:
    """Results on all photos for one method and on a few for the others, because the reference is
    slow.
    """
    return photos if method == METHODS[0] else photos[:2]


def _right(logits: Array, labels: Array) -> tuple[int, int]:
    best = np.argsort(-logits, axis=1)[:, :5]
    return int((best[:, 0] == labels).sum()), int((best == labels[:, None]).any(axis=1).sum())
