"""Networks of one layer: an integer program that XNNPACK and the engine compute exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qgraph.backends.engine.file import engine_file
from qgraph.backends.network_forms import Network
from qgraph.backends.tflite.model_builder import metadata_of
from qgraph.backends.tflite.tflite_form import TfliteForm
from qgraph.ir.graph import Graph
from qgraph.ir.types import QuantSpec, Role
from qgraph.program import Entry, Program, Step, Tensor, run
from qgraph.program.ops import Operand
from qgraph.quant.profile import Profile

Codes = npt.NDArray[np.int64]
SEED = 1


@dataclass(frozen=True)
class LayerShape:
    """A convolution with stride, or a product where `side` is 1, of 8-bit codes.

    multiplications: of one run, without those of padding.
    """

    side: int
    channels: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    depthwise: bool = False

    @property
    def out_side(self) -> int:
        return -(-self.side // self.stride)

    @property
    def weights(self) -> tuple[int, ...]:
        if self.side == 1:
            return (self.channels, self.outputs)
        inputs = (self.channels, 1) if self.depthwise else (self.channels, self.outputs)
        return (self.kernel, self.kernel, *inputs)

    @property
    def sums(self) -> int:
        """Products of a sum."""
        return self.kernel**2 * (1 if self.depthwise else self.channels)

    @property
    def multiplications(self) -> int:
        return self.out_side**2 * self.outputs * self.sums

    def __str__(self) -> str:
        if self.side == 1:
            return f"product, {self.channels} to {self.outputs}"
        kind = "depthwise" if self.depthwise else "convolution"
        return (
            f"{kind} {self.kernel}x{self.kernel}/{self.stride}, "
            f"{self.side}x{self.side}, {self.channels} to {self.outputs}"
        )


# Of MobileNetV1 and of a residual network.
LAYERS = (
    LayerShape(112, 3, 32, kernel=3, stride=2),
    LayerShape(56, 64, 64, kernel=3, depthwise=True),
    LayerShape(28, 128, 128, kernel=3, stride=2, depthwise=True),
    LayerShape(28, 128, 128),
    LayerShape(14, 256, 256),
    LayerShape(7, 40, 120),
    LayerShape(14, 64, 64, kernel=3),
    LayerShape(1, 512, 512),
)


class _LayerProgram:
    """The program of a layer, step by step."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, npt.NDArray[np.generic]] = {}
        self.steps: list[Step] = []

    def tensor(self, name: str, shape: tuple[int, ...], low: int, high: int, size: int) -> str:
        self.tensors[name] = Tensor(name, shape, low, high, size, 0)
        return name

    def constant(self, name: str, codes: Codes) -> str:
        low, high = int(codes.min()), int(codes.max())
        self.tensor(name, codes.shape, low, high, max(-low, high))
        self.constants[name] = codes.astype(self.tensors[name].storage)
        return name

    def step(self, op: str, *inputs: str, **attrs: object) -> str:
        step = Step(op, inputs, op, attrs)
        used = [self.tensors[name] for name in inputs]
        shape = step.definition.shape(step.attrs, [t.shape for t in used])
        reach = step.definition.reach(
            step.attrs,
            [
                Operand(t.shape, t.low, t.high, t.magnitude, self.constants.get(t.name))
                for t in used
            ],
        )
        self.steps.append(step)
        return self.tensor(op, tuple(shape), reach.low, reach.high, reach.magnitude)


def program_of(layer: LayerShape) -> Program:
    """The layer with biases, a rounding half to even and a ReLU, with random weights.

    Weights are normally distributed and end at the ends of their range, as those of trained layers
    are.
    """
    made, rng = _LayerProgram(), np.random.default_rng(SEED)
    square = layer.side > 1
    shape = (1, layer.side, layer.side, layer.channels) if square else (1, layer.channels)
    x = made.tensor("x", shape, 0, 255, 255)
    drawn = np.clip(np.rint(rng.normal(0, 25, layer.weights)), -127, 127).astype(np.int64)
    w = made.constant("w", drawn)
    bias = made.constant("b", rng.integers(-9999, 10000, (layer.outputs,)))
    if square:
        pads = max((layer.out_side - 1) * layer.stride + layer.kernel - layer.side, 0)
        pad = (pads // 2, pads - pads // 2)
        window = {"strides": (layer.stride,) * 2, "dilations": (1, 1), "pads": (pad, pad)}
        y = (
            made.step("depthwise_conv2d", x, w, **window)
            if layer.depthwise
            else made.step("conv2d", x, w, **window, groups=1)
        )
    else:
        y = made.step("matmul", x, w)
    # Sums have a standard deviation of about 147 * 25 * the root of their length.
    shift = round(math.log2(147 * 25 * math.sqrt(layer.sums) / 100))
    y = made.step("add", y, bias)
    rounded = {"rounding": "half_even", "overflow": "saturate", "low": 0, "high": 255}
    y = made.step("requantize", y, shift=shift, **rounded)
    entry = Entry("x", "input", QuantSpec(8, False, Role.INPUT, 0))
    return Program(
        "layer", made.tensors, made.constants, (entry,), (y,), tuple(made.steps), batch_free=True
    )


@dataclass(frozen=True)
class LayerFiles:
    """The files of a layer for both programs, and the codes that both must give."""

    folder: Path
    expected: Codes
    zero: int  # stored code of 0 in LiteRT

    @property
    def by_litert(self) -> Codes:
        """The codes that LiteRT gave."""
        stored: Codes = np.load(self.folder / "litert.npy").astype(np.int64)
        return stored - self.zero

    @property
    def by_engine(self) -> Codes:
        """The codes that the engine gave."""
        stored = np.frombuffer((self.folder / "output.bin").read_bytes(), np.uint8)
        return stored.astype(np.int64).reshape(self.expected.shape)


def written(layer: LayerShape, folder: Path) -> LayerFiles:
    """Write a layer, with random codes of its input, into an empty folder."""
    program = program_of(layer)
    codes = np.random.default_rng(SEED + 1).integers(0, 256, program.tensors["x"].shape)
    network = Network(Graph(program.name), program, Profile("any"), {})
    data = TfliteForm(codes=True).emit(network)
    (folder / "network.tflite").write_bytes(data)
    (folder / "network.qgi").write_bytes(engine_file(program))
    (folder / "input.bin").write_bytes(codes.astype(np.uint8).tobytes())
    meta: Mapping[str, Mapping[str, Mapping[str, int]]] = metadata_of(data)
    np.save(folder / "input0.npy", codes + meta["entries"]["x"]["zero"])
    (exit_name,) = program.exits
    expected = run(program, {"x": codes}, [exit_name])[exit_name].astype(np.int64)
    return LayerFiles(folder, expected, meta["exits"][exit_name]["zero"])
