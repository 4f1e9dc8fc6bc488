"""Rules for layers: dense layers, also on rows, convolutions, and products of two values."""

from __future__ import annotations

import math

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops.attributes import SlidingAttrs
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.ops.pool import PoolAttrs, ReductionAttrs
from qgraph.ir.ops.windows import explicit_pads
from qgraph.ir.types import Array
from qgraph.rl.policy.writer import ActorProgramWriter, no_actor

NO_DILATION = (1, 1)


def matmul(writer: ActorProgramWriter, node: Node) -> None:
    """A dense layer, or a product of two values."""
    x, w = node.inputs
    if writer.graph.constant(w) is None and writer.graph.constant(x) is None:
        _product(writer, node)
        return
    kernel = writer.constant(node)
    if kernel.ndim > 2 and math.prod(kernel.shape[:-2]) == 1:
        kernel = kernel.reshape(kernel.shape[-2:])
    if kernel.ndim != 2:
        raise no_actor(node, " with a constant of several matrices")
    bias = np.zeros(kernel.shape[1], np.float32)
    shape = writer.known(x)
    if shape[-1] != kernel.shape[0]:
        raise no_actor(node, " along the axis of samples")
    if len(shape) == 1:
        writer.add(node.name, "dense", writer.shaped(x), kernel=kernel, bias=bias)
        return
    # One layer on many rows is a convolution of an image of one column.
    rows = (math.prod(shape[:-1]), 1, shape[-1])
    image = writer.reshaped(f"{node.name}/rows", writer.value(x), rows)
    writer.add(node.name, "conv", image, kernel=kernel[None, None], bias=bias)


def _product(writer: ActorProgramWriter, node: Node) -> None:
    a, b = (writer.shaped(value) for value in node.inputs)
    of_a, of_b = writer.shapes[a], writer.shapes[b]
    if len(of_a) < 2 or len(of_a) != len(of_b) or of_a[:-2] != of_b[:-2]:
        raise no_actor(node, f" of values of shapes {list(of_a)} and {list(of_b)}")
    writer.add(node.name, "matmul", a, b)


def conv(writer: ActorProgramWriter, node: Node) -> None:
    kernel = writer.constant(node)
    channels = writer.known(node.inputs[0])[-1]
    _conv(writer, node, _of_all_channels(kernel, channels // kernel.shape[2]))


def _of_all_channels(kernel: Array, groups: int) -> Array:
    """The kernel of a convolution in groups, with zeros for the channels of other groups."""
    if groups == 1:
        return kernel
    per_group, outputs = kernel.shape[2], kernel.shape[3] // groups
    whole = np.zeros((*kernel.shape[:2], per_group * groups, kernel.shape[3]), np.float32)
    for group in range(groups):
        own = slice(group * outputs, (group + 1) * outputs)
        whole[:, :, group * per_group : (group + 1) * per_group, own] = kernel[..., own]
    return whole


def depthwise(writer: ActorProgramWriter, node: Node) -> None:
    kernel = writer.constant(node)
    height, width, channels, multiplier = kernel.shape
    apart = kernel.reshape(height, width, 1, channels * multiplier)
    _conv(writer, node, _of_all_channels(apart, channels))


def _conv(writer: ActorProgramWriter, node: Node, kernel: Array) -> None:
    if len(writer.known(node.inputs[0])) != 3:
        raise no_actor(node, " on several images of one sample")
    kernel = _spread(kernel, node.typed(ConvAttrs).dilations)
    bias = np.zeros(kernel.shape[3], np.float32)
    attrs = _window(writer, node, kernel.shape[:2])
    writer.add(
        node.name, "conv", writer.shaped(node.inputs[0]), attrs=attrs, kernel=kernel, bias=bias
    )


def _spread(kernel: Array, dilations: tuple[int, int]) -> Array:
    """A kernel with zeros between its taps."""
    if dilations == NO_DILATION:
        return kernel
    height, width = ((n - 1) * by + 1 for n, by in zip(kernel.shape[:2], dilations, strict=True))
    whole = np.zeros((height, width, *kernel.shape[2:]), np.float32)
    whole[:: dilations[0], :: dilations[1]] = kernel
    return whole


def _window(writer: ActorProgramWriter, node: Node, kernel: tuple[int, ...]) -> dict[str, object]:
    height, width = writer.known(node.inputs[0])[:2]
    window = node.typed(SlidingAttrs)
    strides, padding = window.strides, window.padding
    size = (kernel[0], kernel[1])
    pads = explicit_pads((height, width), size, strides, NO_DILATION, padding)
    return {"strides": tuple(strides), "pads": pads}


def pool(writer: ActorProgramWriter, node: Node) -> None:
    ksize = node.typed(PoolAttrs).ksize
    attrs = {"ksize": ksize, **_window(writer, node, ksize)}
    writer.add(node.name, node.op, writer.shaped(node.inputs[0]), attrs=attrs)


def largest(writer: ActorProgramWriter, node: Node) -> None:
    """The largest number of each channel of an image, by one window over the whole image."""
    places = sorted(writer.axis(node, axis) for axis in node.typed(ReductionAttrs).axes)
    shape = writer.known(node.inputs[0])
    if len(shape) not in (2, 3) or places != [*range(len(shape) - 1)]:
        raise no_actor(node, " along other axes than height and width")
    image = (*([1] if len(shape) == 2 else []), *shape)
    rows = writer.reshaped(f"{node.name}/image", writer.value(node.inputs[0]), image)
    attrs = {"ksize": image[:2], "strides": (1, 1)}
    writer.add(node.name, "max_pool", rows, attrs=attrs)


def is_scale(writer: ActorProgramWriter, node: Node) -> bool:
    """Whether a depthwise convolution only scales channels."""
    kernel = writer.constant(node)
    one = kernel.shape[:2] == (1, 1) and kernel.shape[3] == 1
    return one and node.typed(ConvAttrs).strides == (1, 1)
