"""Whether the search of `--effort default` helps on samples that it did not use, on 20 networks.

A plan is chosen on calibration samples. Here the plans of `fast` and of `default` are compared on
other samples. Networks without trained weights get batch norms fitted to the images, so that
signals have usual sizes. Their results depend much on the samples, so they are means over several
sets of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, mode
from typing import Any

import numpy as np

from benchmarks import assets
from benchmarks.families.data import fashion_mnist
from benchmarks.families.networks import FAMILIES
from benchmarks.families.train import path_of
from benchmarks.real import cases
from benchmarks.real.cases import Case
from benchmarks.real.formats import chords
from benchmarks.real.mobilenet import enlarged
from benchmarks.real.resumed import Part, resumed
from benchmarks.tables import Table
from qgraph.choices import Effort
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.ir.types import Array
from qgraph.quantized import Quantized
from qgraph.static.agreement import Agreement

CALIBRATION, TEST, SIDE = 64, 200, 96
SETS = 3  # of calibration samples, for networks with random weights
UNTRAINED = ("ResNet50", "MobileNetV2", "MobileNetV3Small", "EfficientNetB0", "DenseNet121",
             "InceptionV3")  # fmt: skip
FITTING, MOMENTUM = 10, 0.5  # batches that fit batch norms, and their momentum
CLOSE = 0.3  # dB that `default` may lose


def tables() -> Iterator[Table]:
    """One table: a row for each network."""
    table = Table(
        "Plans of `fast` and `default` on images that neither has seen",
        {"network": "", "weights": "", "samples": "", "fast dB": ".2f", "default dB": ".2f",
         "gain dB": ".2f", "gain by set": "", "fast as float": ".1%", "default as float": ".1%",
         "plan": ""},
    )  # fmt: skip
    parts = {name: partial(_row, name, "trained", made) for name, made in TRAINED.items()}
    parts |= {name: partial(_row, name, "random", partial(_untrained, name)) for name in UNTRAINED}
    for part in resumed("plan-choice", parts):
        table.notes.append(part.note)
        for row in part.rows:
            table.add(*row)
    gains = [row["gain dB"] for row in table.rows]
    worse = sum(gain < -CLOSE for gain in gains)
    table.notes.append(
        f"`default` is worse by more than {CLOSE} dB on {worse} of {len(gains)} networks; "
        f"smallest gain {min(gains):.2f} dB, median {np.median(gains):.2f} dB"
    )
    yield table


def _row(name: str, weights: str, made: Callable[[], Case | list[Case]]) -> Part:
    """The row of a network: means over sets of samples, and the plan that most of them choose."""
    known = made()
    cases = known if isinstance(known, list) else [known]
    fast = [case.agreement(_quantized(case, Effort.FAST).graph) for case in cases]
    chosen = [_quantized(case, Effort.DEFAULT) for case in cases]
    default = [case.agreement(one.graph) for case, one in zip(cases, chosen, strict=True)]
    gains = [b.sqnr - a.sqnr for a, b in zip(fast, default, strict=True)]
    cells = [
        *(mean(one.sqnr for one in found) for found in (fast, default)),
        mean(gains),
        ", ".join(f"{gain:+.2f}" for gain in gains) if len(gains) > 1 else None,
        *(_same_class(found) for found in (fast, default)),
        mode(one.facts.choice.plan_spec for one in chosen),
    ]
    return Part([[name, weights, len(cases[0].calibration), *cells]], cases[0].images)


def _quantized(case: Case, effort: Effort) -> Quantized:
    return quantize(case.model, case.calibration, effort=effort)


def _same_class(found: Sequence[Agreement]) -> float | None:
    shares = [one.top1 for one in found if one.top1 is not None]
    return mean(shares) if shares else None


def family(name: str) -> Case:
    """A family's network on Fashion-MNIST."""
    data = fashion_mnist()
    calibration = data.calibration[: 4 * CALIBRATION]
    note = f"{name}: {len(calibration)} training images of Fashion-MNIST, 1,000 test images"
    test = data.test.first(1000).images
    return Case(name, load(path_of(name)), calibration, test, note)


def _small_mobilenet() -> Case:
    import tf_keras

    model = tf_keras.applications.MobileNet(alpha=0.25, weights=None)
    model.load_weights(assets.small_mobilenet_weights())
    return _on_pictures("MobileNetV1 0.25", model, 224, enlarged)


def _untrained(name: str) -> list[Case]:
    """A network with random weights, with each set of calibration samples."""
    import tf_keras

    tf_keras.utils.set_random_seed(0)
    model = getattr(tf_keras.applications, name)(weights=None, input_shape=(SIDE, SIDE, 3))
    for layer in model.layers:
        if isinstance(layer, tf_keras.layers.BatchNormalization):
            layer.momentum = MOMENTUM
    # These networks scale pixels themselves.
    pixels = name.startswith(("MobileNetV3", "EfficientNet"))
    prepare = _pixels if pixels else enlarged
    pictures = assets.cifar10_train()[0][1000:]
    for i in range(FITTING):
        model(prepare(pictures[32 * i : 32 * (i + 1)], SIDE), training=True)
    first = _on_pictures(name, model, SIDE, prepare)
    training = assets.cifar10_train()[0][: SETS * CALIBRATION]
    note = f"{first.images}, means over {SETS} sets of training images"
    return [
        replace(first, calibration=prepare(pictures, SIDE), images=note)
        for pictures in np.split(training, SETS)
    ]


def _pixels(pictures: Array, size: int) -> Array:
    return (enlarged(pictures, size) + 1) * np.float32(127.5)


def _on_pictures(name: str, model: Any, size: int, prepare: Callable[[Array, int], Array]) -> Case:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.h5"
        model.save(path)
        graph = load(path)
    calibration = prepare(assets.cifar10_train()[0][:CALIBRATION], size)
    test = prepare(assets.cifar10_test()[0][:TEST], size)
    note = f"{name}: {CALIBRATION} CIFAR-10 training images at {size}, {TEST} test images"
    return Case(name, graph, calibration, test, note)


def _basic_pitch() -> Case:
    model = load(assets.basic_pitch_onnx())
    note = "basic-pitch: 16 synthetic chords of 2 s, 16 others"
    return Case("basic-pitch", model, chords(16, seed=0), chords(16, seed=1), note)


def _text(name: str, path: Callable[[], Path], size: tuple[int, int]) -> Case:
    """A network of PP-OCR on strips of photos. They show no text, since only the distance
    matters.
    """
    model = load(path())
    strips = _strips(size)
    half = len(strips) // 2
    note = f"{name}: {half} strips of photos at {size[1]} x {size[0]}, {len(strips) - half} others"
    return Case(name, model, strips[:half], strips[half:], note)


def _strips(size: tuple[int, int]) -> Array:
    """Parts of photographs in a fixed random order, float32 [n, 3, height, width] in [-1, 1]."""
    from PIL import Image

    height, width = size
    found = []
    for path in assets.other_photos():
        with Image.open(path) as image:
            photo = image.convert("RGB").resize((2 * width, 4 * height))
        whole = np.asarray(photo)
        found += [
            whole[i * height : (i + 1) * height, j * width : (j + 1) * width]
            for i in range(4)
            for j in range(2)
        ]
    order = np.random.default_rng(0).permutation(len(found))[: 2 * CALIBRATION]
    pictures = np.stack([found[i] for i in order]).astype(np.float32)
    return np.ascontiguousarray((pictures / 127.5 - 1).transpose(0, 3, 1, 2))


TRAINED: Mapping[str, Callable[[], Case]] = {
    **{f"{name} (Fashion-MNIST)": partial(family, name) for name in FAMILIES},
    "digits": cases.digits,
    "cifar_10_model": cases.cifar,
    "MobileNetV1": cases.mobilenet_v1,
    "MobileNetV1 0.25": _small_mobilenet,
    "face-mask MobileNetV2": cases.face_mask,
    "basic-pitch": _basic_pitch,
    "PP-OCR direction": partial(
        _text, "PP-OCR direction", assets.text_direction_network, (48, 192)
    ),
    "PP-OCR detection": partial(
        _text, "PP-OCR detection", assets.text_detection_network, (96, 192)
    ),
}
