"""Ops that arrange numbers in other shapes, and sums and products along one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.types import Array
from qgraph.ops.attribute_types import Pair
from qgraph.ops.attributes import Attributes, attribute
from qgraph.ops.movement import TransposeAttrs
from qgraph.rl.actor.ops.arithmetic import F, total
from qgraph.rl.actor.ops.base import (
    ActorOp,
    AnyActorOp,
    ChannelRule,
    Shape,
    StepWeight,
    check_rank,
)


@dataclass(frozen=True)
class ColumnsAttrs(Attributes):
    """Columns that follow one another. Raises GraphError for none."""

    columns: Pair = attribute("the first one, and how many", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns[1] < 1:
            raise GraphError("attribute `columns` has no columns")


@dataclass(frozen=True)
class ShapeAttrs(Attributes):
    """A shape of one sample."""

    shape: tuple[int, ...] = attribute("sizes of the result", low=1)


# -- shapes -------------------------------------------------------------------------------------


def _slice_shape(attrs: ColumnsAttrs, inputs: Sequence[Shape], weights: Sequence[Shape]) -> Shape:
    (x,), (first, count) = inputs, attrs.columns
    if first + count > x[-1]:
        raise GraphError(f"columns {first} to {first + count - 1} of a value of shape {x}")
    return (*x[:-1], count)


def _reshape_shape(attrs: ShapeAttrs, inputs: Sequence[Shape], weights: Sequence[Shape]) -> Shape:
    if math.prod(attrs.shape) != math.prod(inputs[0]):
        raise GraphError(f"a value of shape {inputs[0]} does not fit shape {attrs.shape}")
    return attrs.shape


def _transpose_shape(
    attrs: TransposeAttrs, inputs: Sequence[Shape], weights: Sequence[Shape]
) -> Shape:
    check_rank(inputs[0], len(attrs.perm))
    return tuple(inputs[0][axis] for axis in attrs.perm)


def _sum_shape(attrs: Attributes, inputs: Sequence[Shape], weights: Sequence[Shape]) -> Shape:
    return (*inputs[0][:-1], 1)


def _matmul_shape(attrs: Attributes, inputs: Sequence[Shape], weights: Sequence[Shape]) -> Shape:
    a, b = inputs
    if len(a) < 2 or a[:-2] != b[:-2] or a[-1:] != b[-2:-1]:
        raise GraphError(f"matrices of shapes {a} and {b} cannot be multiplied")
    return (*a[:-1], b[-1])


# -- arithmetic ---------------------------------------------------------------------------------


def _slice(attrs: ColumnsAttrs, inputs: Sequence[Array], weights: Sequence[StepWeight]) -> Array:
    first, count = attrs.columns
    return inputs[0][..., first : first + count]


def _reshape(attrs: ShapeAttrs, inputs: Sequence[Array], weights: Sequence[StepWeight]) -> Array:
    return inputs[0].reshape(len(inputs[0]), *attrs.shape)


def _transpose(
    attrs: TransposeAttrs, inputs: Sequence[Array], weights: Sequence[StepWeight]
) -> Array:
    return inputs[0].transpose(0, *(axis + 1 for axis in attrs.perm))


def _matmul(attrs: Attributes, inputs: Sequence[Array], weights: Sequence[StepWeight]) -> Array:
    """Products are added one after the other."""
    a, b = inputs
    y = np.zeros((*a.shape[:-1], b.shape[-1]), F)
    for k in range(a.shape[-1]):
        y += a[..., k, None] * b[..., k, None, :]
    return y


OPS: tuple[AnyActorOp, ...] = (
    ActorOp(
        "slice",
        13,
        "some columns of the last axis",
        ("x",),
        (),
        ColumnsAttrs,
        ChannelRule.PLACED,
        _slice_shape,
        _slice,
    ),
    ActorOp(
        "reshape",
        14,
        "the same numbers in another shape, rows first",
        ("x",),
        (),
        ShapeAttrs,
        ChannelRule.PLACED,
        _reshape_shape,
        _reshape,
    ),
    ActorOp(
        "transpose",
        15,
        "the axes in another order",
        ("x",),
        (),
        TransposeAttrs,
        ChannelRule.PLACED,
        _transpose_shape,
        _transpose,
    ),
    ActorOp(
        "sum",
        16,
        "the sum along the last axis, which stays with one number",
        ("x",),
        (),
        Attributes,
        ChannelRule.PLACED,
        _sum_shape,
        lambda attrs, inputs, weights: total(inputs[0]),
    ),
    ActorOp(
        "matmul",
        17,
        "a product of two values, [..., n, k] and [..., k, m]",
        ("a", "b"),
        (),
        Attributes,
        ChannelRule.PLACED,
        _matmul_shape,
        _matmul,
    ),
)
