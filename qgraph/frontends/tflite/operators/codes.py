"""Conversions between codes and the numbers that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.tflite.operators.translator import Translator

# Operators whose results have the codes of their inputs, if both have one scale.
MOVES = frozenset(
    (
        "BATCH_TO_SPACE_ND", "BROADCAST_TO", "CONCATENATION", "DEPTH_TO_SPACE", "EXPAND_DIMS",
        "GATHER", "MAX_POOL_2D", "MIRROR_PAD", "PACK", "PAD", "PADV2", "RESHAPE",
        "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "SELECT", "SELECT_V2", "SLICE",
        "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE",
        "TILE", "TRANSPOSE", "UNPACK",
    )
)  # fmt: skip
OPERATORS: Mapping[str, Translator] = MappingProxyType(
    {
        "QUANTIZE": lambda t: t.input(0),
        "DEQUANTIZE": lambda t: t.input(0),
    }
)
