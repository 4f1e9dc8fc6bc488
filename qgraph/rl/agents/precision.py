"""The number formats that a learner computes in."""

from __future__ import annotations

from qgraph.enums import StrEnum


class LearnerPrecision(StrEnum):
    """Number formats that a learner computes in.

    float16 has 10 bits of significand and its largest number is 65,504; bfloat16 has 7 bits and the
    range of float32. They are different formats, and no name here means both.

    Attributes:
        FLOAT32: Everything in float32.
        MIXED_BFLOAT16: Products in bfloat16; sums, weights and the rest in float32.
        FLOAT16: Everything in float16.
        MIXED_FLOAT16: Weights and optimizer state in float32, the rest in float16.
        FLOAT64: Everything in float64, for comparisons.

    Examples:
        >>> from qgraph.rl.agents import LearnerPrecision
        >>> LearnerPrecision("mixed_bfloat16")
        'mixed_bfloat16'
    """

    FLOAT32 = "float32"
    MIXED_BFLOAT16 = "mixed_bfloat16"
    FLOAT16 = "float16"
    MIXED_FLOAT16 = "mixed_float16"
    FLOAT64 = "float64"
