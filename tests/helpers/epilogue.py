"""The epilogue in numpy: the quantizers' kernels in sequence, and sums of channels in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qgraph import kernels
from qgraph.ir.types import Array

LANES, BLOCK, SPAN = 32, 1 << 15, 32  # fused_ops/core/epilogue.h


@dataclass(frozen=True)
class Case:
    """An epilogue on [rows, channels]: inner codes with 8 bits and exponent 6, outer with 4 bits
    and 3.
    """

    x: Array
    g: Array
    bias: Array
    high: Array
    activation: str
    rounding: str = "half_even"

    @property
    def clips(self) -> bool:
        """Whether `high` is used."""
        return self.activation in ("clip", "relu6")

    @property
    def outer_range(self) -> tuple[int, int]:
        """Codes of the outer quantizer."""
        return (-8, 7) if self.activation == "none" else (0, 15)


def case(rows: int, channels: int, activation: str, rounding: str = "half_even") -> Case:
    """Random numbers, some on the grid and some infinite; some codes equal the clip, others exceed
    it.
    """
    rng = np.random.default_rng(0)
    x, g = rng.normal(0, 1, (2, rows, channels)).astype(np.float32)
    flat = x.reshape(-1)
    flat[3::7] = np.rint(flat[3::7] * 64) / 64
    special = [np.inf, -np.inf, -0.0, 0.0, 1e-42, 3e38]
    flat[: len(special)] = special[: len(flat)]
    bias = (np.rint(rng.normal(0, 64, channels)) / 64).astype(np.float32)
    high = np.full(channels, 1.5, np.float32)
    high[channels // 2] = 0
    return Case(x, g, bias, high, activation, rounding)


def forward(c: Case) -> Array:
    """y."""
    return kernels.quantize(_activated(c)[1], 3, *c.outer_range, c.rounding)


def gradients(c: Case) -> tuple[Array, ...]:
    """Gradients of x, inner and outer log2_t, bias, and high if it is used."""
    z, v = _activated(c)
    gv, outer = kernels.quantize_gradients(v, c.g, 3, *c.outer_range, c.rounding)
    gz, clipped = gv, np.zeros_like(gv)
    if c.clips:
        positive = np.where(z < 0, np.float32(0), z)
        passes = positive < c.high if c.activation == "relu6" else positive <= c.high
        gz, clipped = np.where(passes, gv, 0), np.where(passes, 0, gv)
    if c.activation != "none":
        gz = np.where(z > 0, gz, 0)
    gx, inner = kernels.quantize_gradients(c.x, gz, 6, -128, 127, c.rounding)
    high = _of_channels(clipped) if c.clips else np.zeros(0)
    return gx, inner, outer, _of_channels(gz), high


def _activated(c: Case) -> tuple[Array, Array]:
    z = kernels.quantize(c.x, 6, -128, 127, c.rounding) + c.bias
    v = z if c.activation == "none" else np.where(z < 0, np.float32(0), z)
    return z, np.where(v > c.high, c.high, v) if c.clips else v


def _of_channels(values: Array) -> Array:
    channels = values.shape[1]
    flat = values.reshape(-1).astype(np.float64)
    total, span = np.zeros(channels), np.zeros(channels)
    for number, start in enumerate(range(0, flat.size, BLOCK)):
        slots = np.zeros(channels + LANES - 1)
        for at in range(start, min(start + BLOCK, flat.size), LANES):
            row = flat[at : at + LANES]
            slots[at % channels : at % channels + row.size] += row
        sums = slots[:channels].copy()
        for first in range(channels, slots.size, channels):
            rest = slots[first : first + channels]
            sums[: rest.size] += rest
        total, span = (total + span, sums) if number % SPAN == 0 else (total, span + sums)
    return total + span
