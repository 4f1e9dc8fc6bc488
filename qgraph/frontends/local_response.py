"""Local response normalization as a product with a band of ones, a function and a product, which
fixed point can compute.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.site import AnySite
from qgraph.ir.types import Array

MAX_CHANNELS = 1 << 11  # the band has as many rows and columns


def neighbours(channels: int, before: int, after: int) -> Array:
    """A band [channels, channels]: 1 in each column at so many channels around its own, else 0."""
    number = np.arange(channels)
    distance = number[:, None] - number
    return ((distance >= -before) & (distance <= after)).astype(np.float32)


@dataclass(frozen=True)
class LocalResponse:
    """x / (bias + factor * sum of squares) ** power, over neighbours among the channels.

    before, after: the number of neighbours on each side.
    """

    before: int
    after: int
    factor: float
    bias: float
    power: float

    def of(self, site: AnySite, x: str) -> str:
        """The normalized value of `x`, whose last axis has the channels."""
        known = site.builder.graph.types[x]
        channels, kind = (known.shape or (None,))[-1], np.dtype(known.dtype)
        if channels is None or channels > MAX_CHANNELS:
            raise Inexpressible
        near = neighbours(channels, self.before, self.after)
        band = site.const(near.astype(kind), "band")
        square = site.helper("square", "square", x)
        total = site.helper("total", "batch_matmul", square, band)
        scaled = site.helper("scaled", "mul", total, site.const(kind.type(self.factor), "factor"))
        base = site.helper("base", "add", scaled, site.const(kind.type(self.bias), "bias"))
        power = site.const(kind.type(-self.power), "power")
        return site.helper("normalized", "mul", x, site.helper("share", "pow", base, power))
