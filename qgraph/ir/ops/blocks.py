"""Ops that move blocks of an image to its channels or to the batch, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops.base import AnyOp, always, image_sizes
from qgraph.ir.ops.movement import Infer, mover, reach_with_zero
from qgraph.ir.types import Array, TensorType
from qgraph.ops.attribute_types import Pads, Pair
from qgraph.ops.attributes import Attributes, attribute


@dataclass(frozen=True, kw_only=True)
class BlockAttrs(Attributes):
    """Square blocks of an image."""

    block: int = attribute("height and width of a block", low=1)


@dataclass(frozen=True, kw_only=True)
class SpaceToBatchAttrs(Attributes):
    """Blocks of an image, whose positions become images."""

    block: Pair = attribute("height and width of a block", low=1)
    paddings: Pads = attribute("zeros around the image", low=0)


@dataclass(frozen=True, kw_only=True)
class BatchToSpaceAttrs(Attributes):
    """Images that become positions in the blocks of a larger image."""

    block: Pair = attribute("height and width of a block", low=1)
    crops: Pads = attribute("number of elements to remove around the image", low=0)


def _check_divides(x: TensorType, dim: int | None, parts: int) -> None:
    if dim is not None and dim % parts:
        raise GraphError(f"{dim} in {x} does not divide into {parts}")


def _infer_block(up: bool) -> Infer:
    def infer(attrs: BlockAttrs, inputs: Sequence[TensorType]) -> TensorType:
        x, b = inputs[0], attrs.block
        n, h, w, c = image_sizes(x)
        if up:
            _check_divides(x, c, b * b)
            dims = (None if h is None else h * b, None if w is None else w * b)
            return x.with_shape((n, *dims, None if c is None else c // (b * b)))
        _check_divides(x, h, b)
        _check_divides(x, w, b)
        dims = (None if h is None else h // b, None if w is None else w // b)
        return x.with_shape((n, *dims, None if c is None else c * b * b))

    return infer


def _space_to_depth(attrs: BlockAttrs, inputs: Sequence[Array]) -> Array:
    x, b = inputs[0], attrs.block
    n, h, w, c = x.shape
    y = x.reshape(n, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(n, h // b, w // b, b * b * c)


def _depth_to_space(attrs: BlockAttrs, inputs: Sequence[Array]) -> Array:
    x, b = inputs[0], attrs.block
    n, h, w, c = x.shape
    y = x.reshape(n, h, w, b, b, c // (b * b)).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(n, h * b, w * b, c // (b * b))


def _infer_space_to_batch(attrs: SpaceToBatchAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    (bh, bw), ((t, b), (left, right)) = attrs.block, attrs.paddings
    n, h, w, c = image_sizes(x)
    _check_divides(x, None if h is None else h + t + b, bh)
    _check_divides(x, None if w is None else w + left + right, bw)
    return x.with_shape(
        (
            None if n is None else n * bh * bw,
            None if h is None else (h + t + b) // bh,
            None if w is None else (w + left + right) // bw,
            c,
        )
    )


def _space_to_batch(attrs: SpaceToBatchAttrs, inputs: Sequence[Array]) -> Array:
    (bh, bw) = attrs.block
    x = np.pad(inputs[0], ((0, 0), *attrs.paddings, (0, 0)))
    n, h, w, c = x.shape
    y = x.reshape(n, h // bh, bh, w // bw, bw, c).transpose(2, 4, 0, 1, 3, 5)
    return y.reshape(n * bh * bw, h // bh, w // bw, c)


def _infer_batch_to_space(attrs: BatchToSpaceAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    (bh, bw), ((t, b), (left, right)) = attrs.block, attrs.crops
    n, h, w, c = image_sizes(x)
    _check_divides(x, n, bh * bw)
    if (h is not None and h * bh < t + b) or (w is not None and w * bw < left + right):
        raise GraphError(f"crops {attrs.crops} are larger than the image of {x}")
    return x.with_shape(
        (
            None if n is None else n // (bh * bw),
            None if h is None else h * bh - t - b,
            None if w is None else w * bw - left - right,
            c,
        )
    )


def _batch_to_space(attrs: BatchToSpaceAttrs, inputs: Sequence[Array]) -> Array:
    (bh, bw), ((t, b), (left, right)) = attrs.block, attrs.crops
    x = inputs[0]
    n, h, w, c = x.shape
    y = x.reshape(bh, bw, n // (bh * bw), h, w, c).transpose(2, 3, 0, 4, 1, 5)
    y = y.reshape(n // (bh * bw), h * bh, w * bw, c)
    return y[:, t : h * bh - b, left : w * bw - right]


OPS: tuple[AnyOp, ...] = (
    mover("space_to_depth", BlockAttrs, _infer_block(up=False), _space_to_depth, always),
    mover("depth_to_space", BlockAttrs, _infer_block(up=True), _depth_to_space, always),
    mover(
        "space_to_batch", SpaceToBatchAttrs, _infer_space_to_batch, _space_to_batch, None,
        reach_with_zero,
    ),
    mover("batch_to_space", BatchToSpaceAttrs, _infer_batch_to_space, _batch_to_space, None),
)  # fmt: skip
