"""The four networks, quantized, with samples and the outputs of the integer reference.

Each network is written as C and as `.tflite` of int8, by the same codes: profile `tflm`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.microcontrollers.tiny_networks import TINY_NETWORKS
from qgraph.backends.c.c_form import CForm
from qgraph.backends.network_forms import Network
from qgraph.backends.tflite.model_builder import metadata_of
from qgraph.backends.tflite.tflite_form import FILE, TfliteForm
from qgraph.exact.reference import Reference
from qgraph.ir.types import Array, Fixed
from qgraph.stored import load_network

PROFILE, SEED = "tflm", 1
CALIBRATION, SAMPLES = 16, 2


@dataclass(frozen=True)
class PreparedNetwork:
    """A quantized network as C and as `.tflite`, and samples as each of them reads codes.

    inputs, expected: a row of bytes for each sample, of the C code; `tflite_inputs` and
    `tflite_expected` those of the file. products: multiplications of a sample.
    """

    name: str
    folder: Path
    inputs: Array
    expected: Array
    tflite_inputs: Array
    tflite_expected: Array
    products: int

    @property
    def source(self) -> Path:
        return self.folder / f"{self.name}.c"

    @property
    def tflite(self) -> Path:
        return self.folder / FILE


def prepared(name: str, folder: Path, profile: str = PROFILE) -> PreparedNetwork:
    """Quantize a network into a folder, unless it is there, and write its files."""
    import qgraph

    place = folder / "quantized"
    if not place.exists():
        import keras

        keras.utils.set_random_seed(SEED)
        model = TINY_NETWORKS[name]()
        images = _images(model.inputs[0].shape[1:], CALIBRATION, SEED)
        qgraph.quantize(model, {"image": images}, profile=profile, effort="plain").save(place)
    network = load_network(place)
    CForm().write(network, folder)
    TfliteForm(codes=True).write(network, folder)
    return _with_samples(name, network, folder)


def _with_samples(name: str, network: Network, folder: Path) -> PreparedNetwork:
    program = network.program
    (entry,), (exit_,) = program.entries, program.exits
    images = _images(program.tensors[entry.tensor].shape[1:], SAMPLES, SEED + 1)
    found = Reference(network.graph).run({entry.source: images}, [entry.tensor, exit_])
    codes = [v.codes for v in found.values() if isinstance(v, Fixed)]
    about = metadata_of((folder / FILE).read_bytes())
    zeros = [about["tensors"][tensor]["zero"] for tensor in (entry.tensor, exit_)]
    own = [
        _bytes(array, program.tensors[tensor].storage)
        for array, tensor in zip(codes, (entry.tensor, exit_), strict=True)
    ]
    theirs = [_bytes(array + zero, "int8") for array, zero in zip(codes, zeros, strict=True)]
    return PreparedNetwork(name, folder, own[0], own[1], theirs[0], theirs[1], _products(network))


def _bytes(codes: Array, kind: str) -> Array:
    held = np.ascontiguousarray(codes.astype(np.dtype(kind).newbyteorder("<")))
    return held.reshape(len(held), -1).view(np.uint8)


def _images(shape: tuple[int, ...], count: int, seed: int) -> Array:
    """Random images from 0 to 1; pixels differ in brightness."""
    rng = np.random.default_rng(seed)
    return rng.random((count, *shape), np.float32) * rng.random((count, *shape[:-1], 1), np.float32)


def _products(network: Network) -> int:
    """Multiplications of weights for one sample."""
    program, total = network.program, 0
    for step in program.steps:
        shape = program.tensors[step.output].shape
        if step.op == "conv2d":
            total += int(np.prod(shape[1:]) * np.prod(program.tensors[step.inputs[1]].shape[:3]))
        elif step.op == "depthwise_conv2d":
            total += int(np.prod(shape[1:]) * np.prod(program.tensors[step.inputs[1]].shape[:2]))
        elif step.op == "matmul":
            total += int(np.prod(shape[1:]) * program.tensors[step.inputs[1]].shape[0])
    return total
