"""Ops that compute each element separately, by number of inputs.

Quantizers of a float graph have one scale; they are from an already quantized file.
"""

from __future__ import annotations

from qgraph.ir.ops import OPS

UNARY = (
    *(name for name, op in OPS.items() if op.elementwise and op.arity == (1, 1)),
    "quantize",
)
BINARY = tuple(name for name, op in OPS.items() if op.elementwise and op.arity == (2, 2))
CHANNELWISE = ("bias_add", "batch_norm")  # with vectors along the last axis
