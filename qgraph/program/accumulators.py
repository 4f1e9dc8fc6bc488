"""Accumulators of a program: how far each output channel can go, and on which inputs it does.

The bound is that of docs/numerics.md, section 4, from the real weights: a positive weight meets the
highest code of the input, a negative one the lowest. It is reached, so it is no estimate, wherever
every tap of the window lies inside the input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.exact.bounds import FLOAT32_EXACT, FLOAT64_EXACT
from qgraph.ir.types import Codes
from qgraph.program.form import Program, Step

COMPUTE = ("conv2d", "depthwise_conv2d", "matmul")


@dataclass(frozen=True)
class Accumulator:
    """Sums of products, with the bias that is added before they are requantized.

    `lows` and `highs` say, for each output channel, what a sum can reach; `magnitude` what its
    partial sums can, in whatever order; `terms` are the products of one sum.
    """

    layer: str
    op: str
    tensor: str
    terms: int
    lows: Codes
    highs: Codes
    magnitude: int

    @property
    def widths(self) -> Codes:
        """Bits of the narrowest signed accumulator for each channel."""
        reach = np.maximum(self.highs, -self.lows - 1)
        return np.asarray([int(r).bit_length() + 1 for r in reach], np.int64)

    @property
    def width(self) -> int:
        """Bits of the narrowest signed accumulator that cannot overflow."""
        return int(self.widths.max())

    @property
    def channel(self) -> int:
        """The output channel that goes farthest."""
        return int(np.maximum(self.highs, -self.lows - 1).argmax())

    @property
    def exact_in(self) -> str:
        """The narrowest float type that holds every partial sum, or `none`."""
        if self.magnitude <= FLOAT32_EXACT:
            return "float32"
        return "float64" if self.magnitude <= FLOAT64_EXACT else "none"


def accumulators(program: Program) -> list[Accumulator]:
    """Of every layer with constant weights, in order."""
    users: dict[str, list[Step]] = {}
    for step in program.steps:
        for value in step.inputs:
            users.setdefault(value, []).append(step)
    return [
        _accumulator(program, step, users.get(step.output, []))
        for step in program.steps
        if step.op in COMPUTE and step.inputs[1] in program.constants
    ]


def _accumulator(program: Program, step: Step, users: list[Step]) -> Accumulator:
    x = program.tensors[step.inputs[0]]
    weights = by_channel(step, program.constants[step.inputs[1]])
    low, high = min(x.low, 0), max(x.high, 0)  # padding adds nothing
    positive, negative = np.maximum(weights, 0).sum(0), np.minimum(weights, 0).sum(0)
    lows, highs = positive * low + negative * high, positive * high + negative * low
    sizes, tensor = (positive - negative) * x.magnitude, step.output
    bias = _bias(program, users)
    if bias is not None:
        tensor, codes = bias
        lows, highs, sizes = lows + codes, highs + codes, sizes + np.abs(codes)
    return Accumulator(step.output, step.op, tensor, len(weights), lows, highs, int(sizes.max()))


def _bias(program: Program, users: list[Step]) -> tuple[str, Codes] | None:
    """A constant that is added to each channel right behind the sum, and the tensor it makes."""
    if len(users) != 1 or users[0].op != "add":
        return None
    codes = program.constants.get(users[0].inputs[1])
    channels = program.tensors[users[0].output].shape[-1]
    if codes is None or codes.shape != (channels,):
        return None
    return users[0].output, codes.astype(np.int64)


def by_channel(step: Step, weights: Any) -> Codes:
    """Weight codes as int64 [terms, output channels]."""
    terms = math.prod(weights.shape[:2]) if step.op == "depthwise_conv2d" else -1
    columns = math.prod(weights.shape[2:]) if step.op == "depthwise_conv2d" else weights.shape[-1]
    return np.asarray(weights, np.int64).reshape(terms, columns)


def farthest_input(program: Program, accumulator: Accumulator, channel: int, side: str) -> Codes:
    """Codes of the layer's input, in the shape it has, that take a channel as far as it can go.

    side: `highest` or `lowest`. The window in the middle of the input sees them all where it fits;
    elsewhere the input is 0, or its code nearest to 0.
    """
    step = next(s for s in program.steps if s.output == accumulator.layer)
    x, weights = program.tensors[step.inputs[0]], program.constants[step.inputs[1]]
    ends = (x.low, x.high) if side == "highest" else (x.high, x.low)
    codes = np.full(x.shape, min(max(0, x.low), x.high), np.int64)
    if step.op == "matmul":
        codes[0] = np.where(weights[:, channel] > 0, ends[1], ends[0])
        return codes
    pick = _of_channel(step, weights, channel)
    top, left = (_middle(x.shape, step.attrs, weights.shape, axis) for axis in (0, 1))
    (dh, dw), first = step.attrs["dilations"], _first_channel(step, weights, channel)
    for i, j in np.ndindex(*weights.shape[:2]):
        row, column = top + i * dh, left + j * dw
        if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
            taps = np.where(pick[i, j] > 0, ends[1], ends[0])
            codes[0, row, column, first : first + len(taps)] = taps
    return codes


def _of_channel(step: Step, weights: Any, channel: int) -> Any:
    """The filter of one output channel, [height, width, inputs]."""
    if step.op == "depthwise_conv2d":
        multiplier = weights.shape[3]
        return weights[:, :, channel // multiplier, channel % multiplier, None]
    return weights[..., channel]


def _first_channel(step: Step, weights: Any, channel: int) -> int:
    """The first input channel that an output channel sees."""
    if step.op == "depthwise_conv2d":
        return int(channel // weights.shape[3])
    per_group = weights.shape[3] // step.attrs["groups"]
    return int(channel // per_group * weights.shape[2])


def _middle(shape: tuple[int, ...], attrs: Mapping[str, Any], kernel: Any, axis: int) -> int:
    """Where the window that sees most of the input begins, along one spatial axis."""
    size, stride, dilation = shape[1 + axis], attrs["strides"][axis], attrs["dilations"][axis]
    before, after = attrs["pads"][axis]
    span = (kernel[axis] - 1) * dilation + 1
    starts = range(-before, size + after - span + 1, stride)
    seen = [sum(0 <= s + k * dilation < size for k in range(kernel[axis])) for s in starts]
    return int(starts[int(np.argmax(seen))])
