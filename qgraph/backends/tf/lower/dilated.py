"""Dilated convolutions by ops that have gradients on every CPU.

TensorFlow's CPU kernels differentiate a dilated `Conv2D` only with oneDNN on, which is off by
default on older processors, and `DepthwiseConv2dNative` is not dilated at all. Both forms here are
exact: the same products are summed, and the rest are zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from qgraph.backends.tf.builder import DType
from qgraph.backends.tf.emission import Emission
from qgraph.backends.tf.lower.base import strided_slice
from qgraph.ir.graph import Node
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.ops.windows import explicit_pads


def spread_filter(e: Emission, node: Node, w: str, shape: Sequence[int], dtype: str) -> str:
    """The filter with zeros between its taps, written as ops if training changes it."""
    (high, wide, *channels), (down, across) = shape, node.typed(ConvAttrs).dilations
    spread = ((high - 1) * down + 1, (wide - 1) * across + 1, *channels)
    filters = e.constants.get(node.inputs[1])
    if filters is not None:
        zeros = np.zeros(spread, dtype)
        zeros[::down, ::across] = filters
        return e.builder.shared(zeros, f"{node.name}/dilated")

    def step(op: str, what: str, x: str, *numbers: object, **types: DType) -> str:
        held = [e.builder.const(np.array(n, np.int32), f"{node.name}/{what}/n") for n in numbers]
        return e.builder.add(op, f"{node.name}/{what}", [x, *held], T=DType(dtype), **types)

    reshape, index = {"Tshape": DType("int32")}, DType("int32")
    gaps = [(0, 0), (0, down - 1), (0, 0), (0, across - 1), (0, 0), (0, 0)]
    apart = step("Reshape", "taps", w, (high, 1, wide, 1, *channels), **reshape)
    padded = step("Pad", "gaps", apart, gaps, Tpaddings=index)
    whole = step("Reshape", "spread", padded, (high * down, wide * across, *channels), **reshape)
    return step("Slice", "dilated", whole, (0, 0, 0, 0), spread, Index=index)


def space_to_batch(
    e: Emission,
    node: Node,
    x: str,
    sizes: tuple[int, int],
    dtype: str,
    convolve: Callable[[str], str],
) -> str:
    """A dilated `Conv2D` of images of known `sizes`; the phases of an image are in the batch.

    `convolve` emits the convolution without padding, dilation and stride. A stride selects some of
    the results of stride 1.
    """
    window = node.typed(ConvAttrs)
    high, wide, *_ = e.graph.types[node.inputs[1]].shape or (None, None)
    assert high is not None and wide is not None, node.name
    pads = explicit_pads(sizes, (high, wide), window.strides, window.dilations, window.padding)
    more = [-(n + sum(pad)) % d for n, pad, d in zip(sizes, pads, window.dilations, strict=True)]

    def by_phase(op: str, x: str, borders: str, widths: Sequence[tuple[int, int]]) -> str:
        block, border = (
            e.builder.const(np.array(value, np.int32), f"{node.name}/{what}")
            for what, value in (("block_shape", window.dilations), (borders, widths))
        )
        types = {"Tblock_shape": DType("int32"), f"T{borders}": DType("int32")}
        return e.builder.add(op, f"{node.name}/{op}", [x, block, border], T=DType(dtype), **types)

    wider = [(before, after + n) for (before, after), n in zip(pads, more, strict=True)]
    y = convolve(by_phase("SpaceToBatchND", x, "paddings", wider))
    y = by_phase("BatchToSpaceND", y, "crops", [(0, n) for n in more])
    every = [1, *window.strides, 1]
    return strided_slice(e, node.name, y, [None] * 4, [None] * 4, every, dtype)
