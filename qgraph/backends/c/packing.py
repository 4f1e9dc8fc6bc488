"""Weights of products in the order in which the fast kernels read them.

Of four outputs, 16 weights after the other: first those of outputs 0 and 1 in turns, then those of
2 and 3. Missing weights are 0. So Cortex-M4 takes two weights of two outputs from each word, a
Cortex-M55 sixteen of two outputs by one load, and plain C four outputs for each code it reads.
"""

from __future__ import annotations

import numpy as np

from qgraph.ir.types import Array
from qgraph.program import Program, Step
from qgraph.program.ops import Conv2dAttrs

OUTPUTS, DEPTH = 4, 16
LITTLE = 4096  # bytes that a small layer may take more
INT8, INT16 = 2**7 - 1, 2**15 - 1


def padded(outputs: int, depth: int) -> tuple[int, int]:
    """Outputs and weights of each, with those that are missing."""
    return -(-outputs // OUTPUTS) * OUTPUTS, -(-depth // DEPTH) * DEPTH


def packable(program: Program, step: Step, sums: str) -> bool:
    """Whether the fast kernels compute the sums of a conv2d or matmul.

    sums: their type. Weights need 8 bits and codes 16 with sign.
    """
    x, w = (program.tensors[v] for v in step.inputs)
    if step.inputs[1] not in program.constants or sums != "int32":
        return False
    if isinstance(step.attrs, Conv2dAttrs) and step.attrs.groups > 1:
        return False
    if w.low < -INT8 - 1 or w.high > INT8 or x.low < -INT16 - 1 or x.high > INT16:
        return False
    *window, outputs = w.shape
    depth = int(np.prod(window))
    whole = int(np.prod(padded(outputs, depth)))
    return whole <= max(2 * outputs * depth, outputs * depth + LITTLE)


def packed(weights: Array) -> Array:
    """Weights [..., outputs] as [outputs / 4, depth / 16, 2, 16, 2]."""
    flat = weights.reshape(-1, weights.shape[-1])
    outputs, depth = padded(flat.shape[1], flat.shape[0])
    whole = np.zeros((depth, outputs), np.int8)
    whole[: flat.shape[0], : flat.shape[1]] = flat
    blocks = whole.reshape(depth // DEPTH, DEPTH, outputs // OUTPUTS, 2, 2)
    return np.ascontiguousarray(blocks.transpose(2, 0, 3, 1, 4))


def offsets(weights: Array) -> Array:
    """128 times the sum of each output's weights, also for missing outputs."""
    sums = weights.reshape(-1, weights.shape[-1]).astype(np.int64).sum(axis=0)
    whole = np.zeros(padded(len(sums), 1)[0], np.int64)
    whole[: len(sums)] = 128 * sums
    return whole.astype(np.int32)


def by_eight(weights: Array) -> Array:
    """Weights [height, width, channels, 1] of a depthwise_conv2d as [channels / 8, places, 8]."""
    flat = weights.reshape(-1, weights.shape[2])
    whole = np.zeros((len(flat), -(-flat.shape[1] // 8) * 8), np.int8)
    whole[:, : flat.shape[1]] = flat
    return np.ascontiguousarray(whole.reshape(len(flat), -1, 8).transpose(1, 0, 2))
