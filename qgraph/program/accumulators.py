"""Accumulators of a program: how far each output channel can go, and on which inputs it does.

The bound is that of docs/numerics.md, section 4, from the real weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.exact.sums import (
    FLOAT32_EXACT,
    FLOAT64_EXACT,
    by_channel,
    farthest_input,
    seen_taps,
    sums_of_products,
)
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
    x, weights = program.tensors[step.inputs[0]], program.constants[step.inputs[1]]
    windows = (True,) if step.op == "matmul" else _windows(step, x.shape, weights.shape)
    sums = sums_of_products(step.op, weights, x.low, x.high, x.magnitude, windows)
    tensor = step.output
    bias = _bias(program, users)
    if bias is not None:
        tensor, codes = bias
        sums = sums.plus(codes)
    terms = len(by_channel(step.op, weights))
    magnitude = int(sums.magnitudes.max())
    return Accumulator(step.output, step.op, tensor, terms, sums.lows, sums.highs, magnitude)


def _windows(step: Step, image: tuple[int, ...], filters: tuple[int, ...]) -> Any:
    strides, dilations, pads = (step.attrs[key] for key in ("strides", "dilations", "pads"))
    return seen_taps(image[1:3], filters[:2], strides, dilations, pads)


def _bias(program: Program, users: list[Step]) -> tuple[str, Codes] | None:
    """A constant that is added to each channel right behind the sum, and the tensor it makes."""
    if len(users) != 1 or users[0].op != "add":
        return None
    codes = program.constants.get(users[0].inputs[1])
    channels = program.tensors[users[0].output].shape[-1]
    if codes is None or codes.shape != (channels,):
        return None
    return users[0].output, codes.astype(np.int64)


def overflowing_input(program: Program, accumulator: Accumulator, channel: int, side: str) -> Codes:
    """Codes of the layer's input that take a channel to its `highest` or `lowest` sum."""
    step = next(s for s in program.steps if s.output == accumulator.layer)
    x, weights = program.tensors[step.inputs[0]], program.constants[step.inputs[1]]
    ends = (x.low, x.high)
    return farthest_input(step.op, step.attrs, x.shape, ends, weights, channel, side)
