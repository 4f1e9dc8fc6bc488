"""Programs of layers with all kinds of sizes, to compare kernels with numpy."""

from itertools import count

import numpy as np

from qgraph.ir.types import ROUNDINGS, Rounding
from qgraph.program import Program, Step, Tensor
from tests.helpers.c_programs import program_of, tensor

NO_PADS = ((0, 0), (0, 0))
ROUND = ((1, 1), (1, 1))


class LayerProgram:
    """Layers side by side, each with its own input, a bias, a ReLU or none, and a requantization.

    Roundings alternate, and so do shifts for all channels and for each.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: list[Tensor] = []
        self.steps: list[Step] = []
        self.constants: dict[str, np.ndarray] = {}
        self.exits: list[str] = []
        self.numbers = count()

    def conv(self, x, kernel, outputs, strides=(1, 1), dilations=(1, 1), pads=NO_PADS, **more):
        """x: low, high, height, width, channels."""
        *_, height, width, channels = x
        weights = self._weights((*kernel, channels, outputs), more)
        shape = self._slid((height, width), kernel, strides, dilations, pads)
        attrs = {"strides": strides, "dilations": dilations, "pads": pads, "groups": 1}
        self._layer("conv2d", x, weights, (1, *shape, outputs), attrs, more)

    def depthwise(self, x, kernel, strides=(1, 1), dilations=(1, 1), pads=NO_PADS, **more):
        weights = self._weights((*kernel, x[-1], 1), more)
        shape = self._slid(x[2:4], kernel, strides, dilations, pads)
        attrs = {"strides": strides, "dilations": dilations, "pads": pads}
        self._layer("depthwise_conv2d", x, weights, (1, *shape, x[-1]), attrs, more)

    def matmul(self, x, outputs, **more):
        """x: low, high, inputs."""
        self._layer("matmul", x, self._weights((x[-1], outputs), more), (1, outputs), {}, more)

    def program(self) -> Program:
        return program_of(
            *self.tensors, steps=self.steps, constants=self.constants, exits=self.exits
        )

    def codes(self, samples: int = 3) -> dict[str, np.ndarray]:
        """Random codes, then the lowest, the highest, and both in turns."""
        made = {step.output for step in self.steps}
        found = {}
        for t in self.tensors:
            if t.name in made:
                continue
            shape = (samples, *t.shape[1:])
            few = [self.rng.integers(t.low, t.high + 1, shape)]
            turns = np.arange(np.prod(t.shape)).reshape(t.shape) % 2
            few += [np.full(t.shape, t.low), np.full(t.shape, t.high)]
            few += [np.where(turns, t.high, t.low), np.where(turns, t.low, t.high)]
            found[t.name] = np.concatenate(few)
        return found

    @staticmethod
    def _slid(size, kernel, strides, dilations, pads) -> tuple[int, ...]:
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        whole = [n + sum(p) for n, p in zip(size, pads, strict=True)]
        return tuple((n - span) // s + 1 for n, span, s in zip(whole, spans, strides, strict=True))

    def _weights(self, shape, more) -> np.ndarray:
        low, high = more.get("weights", (-128, 127))
        found = self.rng.integers(low, high + 1, shape)
        found.reshape(-1)[:1], found.reshape(-1)[-1:] = low, high
        return found

    def _layer(self, op, x, weights, shape, attrs, more) -> None:
        number = next(self.numbers)
        low, high, *size = x
        most = max(-low, high)
        outputs = shape[-1]
        reach = int(np.abs(weights).reshape(-1, outputs).sum(axis=0).max()) * most
        names = [f"{op}{number}/{part}" for part in ("x", "w", "acc", "b", "sum", "relu", "y")]
        given, w, acc, b, total, relu, y = names
        most = 100 if reach < 2**31 - 200 else 0
        bias = self.rng.integers(-most, most + 1, outputs)
        room = reach + int(np.abs(bias).max())
        least, largest = more.get("to", (-128, 127))
        shift = max(room.bit_length() - 7, 2)
        shifts = tuple(int(s) for s in self.rng.integers(2, shift + 1, outputs))
        requantize = {
            "shift": shifts if number % 3 == 1 else shift, "overflow": "saturate",
            "rounding": more.get("rounding", ROUNDINGS[number % len(ROUNDINGS)]),
            "low": least, "high": largest,
        }  # fmt: skip
        clipped = least == 0
        self.constants |= {w: weights, b: bias}
        self.tensors += [
            tensor(given, (1, *size), low, high), tensor(acc, shape, -reach, reach),
            tensor(total, shape, -room, room),
            *([tensor(relu, shape, 0, room)] if clipped else []),
            tensor(y, shape, least, largest),
        ]  # fmt: skip
        self.steps += [Step(op, (given, w), acc, attrs), Step("add", (acc, b), total, {})]
        if clipped:
            self.steps.append(Step("clip", (total,), relu, {"low": 0, "high": None}))
        self.steps.append(Step("requantize", (relu if clipped else total,), y, requantize))
        self.exits.append(y)


U8, I8, I16, U15 = (0, 255), (-128, 127), (-(2**15), 2**15 - 1), (0, 2**15 - 1)


def every_size() -> LayerProgram:
    """Odd numbers of channels and pixels, strides, paddings, dilations, and types of codes."""
    made = LayerProgram()
    for kind in (U8, I8, I16, U15):
        made.conv((*kind, 5, 5, 3), (3, 3), 5, pads=ROUND, to=(0, 255))
        made.conv((*kind, 6, 7, 4), (3, 2), 4, strides=(2, 1), pads=((0, 1), (1, 0)))
        made.conv((*kind, 3, 3, 17), (2, 2), 9, to=(-(2**15), 2**15 - 1))
        made.conv((*kind, 4, 4, 16), (1, 1), 12, to=(0, 15))
        made.conv((*kind, 5, 5, 5), (1, 1), 3, strides=(2, 2))
        made.conv((*kind, 2, 3, 6), (1, 1), 2, pads=((1, 0), (0, 2)))
        made.conv((*kind, 7, 7, 2), (3, 3), 6, dilations=(2, 2), pads=((2, 2), (2, 2)))
        made.matmul((*kind, 33), 7)
        made.matmul((*kind, 1), 1)
        made.matmul((*kind, 64), 20, to=(0, 255), rounding=Rounding.HALF_EVEN)
    for kind in (U8, I8):
        made.depthwise((*kind, 5, 6, 8), (3, 3), pads=ROUND, to=(0, 255))
        made.depthwise((*kind, 7, 7, 13), (3, 3), strides=(2, 2), pads=ROUND)
        made.depthwise((*kind, 6, 5, 5), (2, 4), dilations=(2, 1), pads=((1, 0), (2, 1)))
        made.depthwise((*kind, 3, 3, 20), (3, 3), pads=((4, 3), (1, 4)))
        made.depthwise((*kind, 4, 4, 1), (4, 4))
    return made


def largest_sums() -> LayerProgram:
    """Sums up to the ends of int32, and the largest offsets of vectors."""
    made = LayerProgram(1)
    made.matmul((*I16, 512), 4, weights=(-128, 127), to=(-(2**15), 2**15 - 1))
    made.matmul((*U8, 4096), 3, weights=(-128, -128))
    made.matmul((*U8, 4096), 3, weights=(127, 127))
    made.conv((*I16, 4, 4, 56), (3, 3), 4, weights=(-128, -127))
    made.depthwise((*U8, 20, 20, 8), (20, 20), weights=(-128, -128))
    return made
