"""The number formats that a learner computes in."""

from __future__ import annotations

from qgraph.enums import StrEnum


class LearnerPrecision(StrEnum):
    """float16 has 10 bits of significand and ends at 65,504; bfloat16 has 7 bits and float32's
    range. They are different formats, and no name here stands for both.

    float32          everything
    mixed_bfloat16   products in bfloat16; sums, weights and the rest in float32
    float16          everything that is kept and computed
    mixed_float16    weights and optimizer state in float32, the rest in float16
    float64          everything, to compare with
    """

    FLOAT32 = "float32"
    MIXED_BFLOAT16 = "mixed_bfloat16"
    FLOAT16 = "float16"
    MIXED_FLOAT16 = "mixed_float16"
    FLOAT64 = "float64"
