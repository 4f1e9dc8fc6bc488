"""The same network by other tools: LiteRT, ONNX Runtime and MCT without training, TFMOT with it.

All have float scales, one for each channel of weights; MCT has powers of two for activations. With
weights of 4 bits, the first and the last layer keep 8; LiteRT's converter has no such weights.
Results are kept in a folder and not repeated.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.families.data import Part, Split
from benchmarks.families.networks import Network
from benchmarks.mobilenet_v2.clock import Clock
from benchmarks.mobilenet_v2.network import mobilenet_v2
from benchmarks.peers.float_onnx import float_onnx
from benchmarks.peers.litert import LiteRT, full_integer
from benchmarks.peers.onnx_runtime import OnnxRuntime, quantized
from benchmarks.quantizers.tfmot import best_by_validation, float_network
from qgraph.files import sha256_of, write_whole
from qgraph.frontends import load
from qgraph.ir.types import Array
from qgraph.train.data import TrainingData, training_data
from qgraph.train.options import Options

AT_ONCE = 500  # images that run together, where a tool can
BY_MCT = Path(__file__).with_name("by_mct.py")


@dataclass(frozen=True)
class FloatNetwork:
    """The frozen float network that all tools get, and its width."""

    path: Path
    width: float

    def keras(self) -> Network:
        """The network as a Keras model."""
        return float_network(partial(mobilenet_v2, self.width), self.path)


Scores = Callable[[FloatNetwork, Split], Array]  # of the test images, [n, classes]


def peers(
    options: Options, mct: Path | None, tfmot: bool, rounding: int = 0
) -> Mapping[str, Scores]:
    """The tools by the names of their rows.

    options: for the training by TFMOT. mct: the interpreter of an environment with MCT. tfmot:
    whether TFMOT is installed. rounding: epochs over the calibration images in which MCT also
    learns how to round weights of 4 bits.
    """
    found: dict[str, Scores] = {"INT8, static, LiteRT": _litert}
    for bits in (8, 4):
        found[f"INT{bits}, static, ONNX Runtime"] = partial(_ort, bits=bits)
        if mct:
            found[f"INT{bits}, static, MCT"] = partial(_mct, python=mct, bits=bits)
        if tfmot:
            found[f"INT{bits}, trained, TFMOT"] = partial(_tfmot, options=options, bits=bits)
    if mct and rounding:
        found[f"INT4, static, MCT, {rounding} epochs of rounding"] = partial(
            _mct, python=mct, bits=4, epochs=rounding
        )
    return found


def right_by_peers(
    network: FloatNetwork, data: Split, tools: Mapping[str, Scores], folder: Path, clock: Clock
) -> Iterator[tuple[str, Array]]:
    """Which test images each tool's network classifies correctly, bool [n].

    Raises OutOfTime between two tools.
    """
    folder.mkdir(parents=True, exist_ok=True)
    asked = json.dumps({"network": sha256_of(network.path), "images": len(data.test.labels)})
    for title, scores in tools.items():
        file = folder / f"{title}.json"
        known = json.loads(file.read_text("utf-8")) if file.exists() else {}
        if known.get("asked") != asked:
            clock.check(f"before {title}")
            classes = scores(network, data).argmax(1).tolist()
            known = {"asked": asked, "classes": classes}
            write_whole(file, json.dumps(known).encode())
        yield title, np.asarray(known["classes"]) == data.test.labels


def _litert(network: FloatNetwork, data: Split) -> Array:
    return LiteRT(full_integer(load(network.path), data.calibration, 1)).predict(data.test.images)


def _ort(network: FloatNetwork, data: Split, bits: int) -> Array:
    model = float_onnx(load(network.path))
    made = quantized(model, data.calibration, 1, per_channel=True, weight_bits=bits)
    return OnnxRuntime(made, optimized=False).predict(data.test.images, AT_ONCE)


def _mct(network: FloatNetwork, data: Split, python: Path, bits: int, epochs: int = 0) -> Array:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        network.keras().save(folder / "float.h5")
        np.save(folder / "calibration.npy", data.calibration)
        np.save(folder / "images.npy", data.test.images)
        given = [folder / n for n in ("float.h5", "calibration.npy", "images.npy", "scores.npy")]
        # TFMOT sets this for its own process; the Keras of MCT's environment is another one.
        variables = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
        subprocess.run([python, BY_MCT, *given, str(bits), str(epochs)], check=True, env=variables)
        scores: Array = np.load(given[-1])
    return scores


def _tfmot(network: FloatNetwork, data: Split, options: Options, bits: int) -> Array:
    graph = load(network.path)

    def batches(part: Part, size: int) -> TrainingData:
        return training_data((part.images, part.labels), graph, size, options.seed)

    learnt, held = batches(data.training, options.batch_size), batches(data.validation, AT_ONCE)
    made, _ = best_by_validation(network.keras(), learnt, held, options, bits)
    tested = batches(data.test, AT_ONCE).batches(None)
    return np.concatenate([made.predict_on_batch(*batch.inputs.values()) for batch in tested])
