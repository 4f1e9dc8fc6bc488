"""Accumulators of a program: the range of each output channel, and inputs that reach its ends.

The bound is that of docs/numerics.md, section 4, computed from the actual weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qgraph.exact.sums import FLOAT32_EXACT, FLOAT64_EXACT, by_channel, sums_of_products
from qgraph.ir.types import Codes
from qgraph.program.ops import OpClass
from qgraph.program.ops.products import windows_of
from qgraph.program.program import Program, Step


@dataclass(frozen=True)
class Accumulator:
    """Sums of products, and the bias that is added before they are requantized.

    `lows` and `highs` are the range of each output channel with its bias, `product_lows` and
    `product_highs` the range without; if there is no bias, they are the same. A bias may bring a
    sum closer to zero, so an accumulator must hold both ranges. `magnitude` bounds every partial
    sum in any order; `terms` is the number of products in one sum.
    """

    layer: str
    op: str
    tensor: str
    terms: int
    lows: Codes
    highs: Codes
    product_lows: Codes
    product_highs: Codes
    magnitude: int

    @property
    def reach(self) -> Codes:
        """The largest magnitude of each channel, before or after its bias.

        A negative end counts one less, because two's complement has one more negative code.
        """
        highs = np.maximum(self.highs, self.product_highs)
        lows = np.minimum(self.lows, self.product_lows)
        farthest: Codes = np.maximum(highs, -lows - 1)
        return farthest

    @property
    def widths(self) -> Codes:
        """Bits of the narrowest signed accumulator for each channel."""
        return _bits(self.reach)

    @property
    def width_of_products(self) -> int:
        """Bits of the sums before their bias."""
        return int(_bits(np.maximum(self.product_highs, -self.product_lows - 1)).max())

    @property
    def width_with_bias(self) -> int:
        """Bits of the sums with their bias."""
        return int(_bits(np.maximum(self.highs, -self.lows - 1)).max())

    @property
    def width(self) -> int:
        """Bits of the narrowest signed accumulator that cannot overflow."""
        return int(self.widths.max())

    @property
    def channel(self) -> int:
        """The output channel with the largest magnitude."""
        return int(self.reach.argmax())

    @property
    def exact_in(self) -> str:
        """The narrowest float type that holds every partial sum, or `none`."""
        if self.magnitude <= FLOAT32_EXACT:
            return "float32"
        return "float64" if self.magnitude <= FLOAT64_EXACT else "none"


def _bits(reach: Codes) -> Codes:
    return np.asarray([int(r).bit_length() + 1 for r in reach], np.int64)


def accumulators(program: Program) -> list[Accumulator]:
    """Accumulators of every layer with constant weights, in order."""
    users: dict[str, list[Step]] = {}
    for step in program.steps:
        for value in step.inputs:
            users.setdefault(value, []).append(step)
    return [
        _accumulator(program, step, users.get(step.output, []))
        for step in program.steps
        if step.family is OpClass.PRODUCT and step.inputs[1] in program.constants
    ]


def _accumulator(program: Program, step: Step, users: list[Step]) -> Accumulator:
    x, weights = program.tensors[step.inputs[0]], program.constants[step.inputs[1]]
    windows = windows_of(step.attrs, x.shape, weights.shape)
    products = sums_of_products(step.op, weights, x.low, x.high, x.magnitude, windows)
    sums, tensor = products, step.output
    bias = _bias(program, users)
    if bias is not None:
        tensor, codes = bias
        sums = products.plus(codes)
    return Accumulator(
        layer=step.output,
        op=step.op,
        tensor=tensor,
        terms=len(by_channel(step.op, weights)),
        lows=sums.lows,
        highs=sums.highs,
        product_lows=products.lows,
        product_highs=products.highs,
        magnitude=int(sums.magnitudes.max()),
    )


def _bias(program: Program, users: list[Step]) -> tuple[str, Codes] | None:
    """A constant that is added to each channel directly after the sum, and the result's tensor."""
    if len(users) != 1 or users[0].op != "add":
        return None
    codes = program.constants.get(users[0].inputs[1])
    channels = program.tensors[users[0].output].shape[-1]
    if codes is None or codes.shape != (channels,):
        return None
    return users[0].output, codes.astype(np.int64)
