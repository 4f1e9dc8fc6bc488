"""Real scales and zero points in integers (TQT, appendix A): cross terms and a multiplier."""

from __future__ import annotations

import numpy as np

from benchmarks.tables import Table
from qgraph.ir.types import Codes
from qgraph.numerics import round_shift

MULTIPLIER_BITS = (31, 15, 7)
ROWS, TERMS, COLUMNS = 512, 288, 64  # the sizes of a 3x3 convolution with 32 channels


def products(q1: Codes, z1: int, q2: Codes, z2: int) -> Codes:
    """Sums of `(q1 - z1) (q2 - z2)` by the cross terms of equation 13: [n, k] times [k, m]."""
    cross = z2 * q1.sum(1, keepdims=True) + z1 * q2.sum(0, keepdims=True)
    made: Codes = q1 @ q2 - cross + len(q2) * z1 * z2
    return made


def multiplier(ratio: float, bits: int) -> tuple[int, int]:
    """`ratio` as `2^-n s0` (equation 15): s0 in [0.5, 1) as an integer of `bits` bits, and n."""
    fraction, exponent = np.frexp(ratio)
    whole = int(np.rint(np.ldexp(fraction, bits)))
    return (whole, -int(exponent)) if whole < 1 << bits else (whole // 2, -int(exponent) - 1)


def rescaled(sums: Codes, ratio: float, bits: int) -> Codes:
    """`sums * ratio` in integers, rounded to nearest, by a multiplier of `bits` bits."""
    whole, n = multiplier(ratio, bits)
    return round_shift(sums * whole, n + bits)


def multipliers_table() -> Table:
    """The number of codes that a multiplier of few bits changes, compared with exact real
    scales.
    """
    rng = np.random.default_rng(0)
    q1 = rng.integers(0, 256, (ROWS, TERMS))
    q2 = np.clip(np.rint(rng.normal(0, 30, (TERMS, COLUMNS))), -127, 127).astype(np.int64)
    sums = products(q1, 13, q2, 0)
    table = Table(
        "Real scales by a fixed-point multiplier",
        {"bits of the multiplier": "d", "codes that differ": ".3%", "most steps apart": "d"},
        notes=[f"8-bit codes of a layer of {TERMS} products, over 20 ratios of scales"],
    )
    ratios = 127 / np.abs(sums).max() * rng.uniform(0.5, 1, 20)
    for bits in MULTIPLIER_BITS:
        apart = np.array([rescaled(sums, r, bits) - np.rint(sums * r) for r in ratios])
        table.add(bits, float((apart != 0).mean()), int(np.abs(apart).max()))
    return table
