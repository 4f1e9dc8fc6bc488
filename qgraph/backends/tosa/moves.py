"""Moves, pools and reductions: they keep codes as they are stored."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from qgraph.backends.tosa.emission import OTHER_FORMAT, TosaEmission
from qgraph.backends.tosa.graph_builder import WIDE, StoredAs
from qgraph.backends.tosa.products import window_of
from qgraph.backends.tosa.requantize import NAN_MODE
from qgraph.backends.tosa.tosa_file import TosaOp, TosaType
from qgraph.errors import UnsupportedError
from qgraph.program import Step
from qgraph.program.ops import (
    ConcatAttrs,
    MaxPoolAttrs,
    PadAttrs,
    ReduceMaxAttrs,
    ReshapeAttrs,
    SliceAttrs,
    TakeAttrs,
    TransposeAttrs,
)

HALF_WIDE = StoredAs(TosaType.INT16)


def _source(emission: TosaEmission, step: Step) -> tuple[str, StoredAs]:
    """The input as its own step stored it; a constant as usual."""
    name = step.inputs[0]
    stored = emission.held_as(name)
    return emission.get(name, stored), stored


def reshape(emission: TosaEmission, step: Step) -> None:
    attrs = emission.attributes(step)
    assert isinstance(attrs, ReshapeAttrs)
    value, stored = _source(emission, step)
    emission.put(step.output, emission.model.reshaped(value, attrs.shape, step.output), stored)


def transpose(emission: TosaEmission, step: Step) -> None:
    value, stored = _source(emission, step)
    perm = step.attrs_as(TransposeAttrs).perm
    shape = emission.shape(step.output)
    made = emission.model.add(
        TosaOp.TRANSPOSE, [value], step.output, stored.dtype, shape, perms=perm
    )
    emission.put(step.output, made, stored)


def cut(emission: TosaEmission, step: Step) -> None:
    """SLICE for indices in a row, REVERSE for those backwards, GATHER for steps."""
    value, stored = _source(emission, step)
    attrs = step.attrs_as(SliceAttrs)
    sizes = emission.model.shape(value)
    parts = zip(attrs.begin, attrs.end, attrs.strides, sizes, strict=True)
    start, size, spread, back = [], [], {}, []
    for axis, (begin, end, stride, whole) in enumerate(parts):
        indices = range(whole)[slice(begin, end, stride)]
        start.append(min(indices))
        size.append(max(indices) - min(indices) + 1)
        if len(indices) < size[-1]:
            spread[axis] = [i - start[-1] for i in indices]
        elif stride < 0:
            back.append(axis)
    value = emission.model.cut(value, start, size, step.output)
    for axis, picked in spread.items():
        value = _picked(emission, value, axis, picked, stored, step.output)
    for axis in back:
        shape = emission.model.shape(value)
        value = emission.model.add(
            TosaOp.REVERSE, [value], step.output, stored.dtype, shape, axis=axis
        )
    emission.put(step.output, value, stored)


def take(emission: TosaEmission, step: Step) -> None:
    value, stored = _source(emission, step)
    attrs = step.attrs_as(TakeAttrs)
    made = _picked(emission, value, attrs.axis, attrs.indices, stored, step.output)
    emission.put(step.output, made, stored)


def embedding(emission: TosaEmission, step: Step) -> None:
    """GATHER of rows, [1, rows, numbers of a row], by int32 indices."""
    (x, table), model = step.inputs, emission.model
    stored, shape = emission.natural(step.output), emission.shape(step.output)
    rows, *row = emission.shape(table)
    count, behind = math.prod(emission.shape(x)), math.prod(row)
    values = model.reshaped(emission.get(table, stored), (1, rows, behind), f"{table}/rows")
    index = model.reshaped(emission.get(x, WIDE), (1, count), f"{step.output}/index")
    made = (1, count, behind)
    found = model.add(TosaOp.GATHER, [values, index], f"{step.output}/picked", stored.dtype, made)
    emission.put(step.output, model.reshaped(found, shape, step.output), stored)


def _picked(
    emission: TosaEmission,
    value: str,
    axis: int,
    indices: Sequence[int],
    stored: StoredAs,
    stem: str,
) -> str:
    """GATHER along an axis: [before, axis, behind], with the same indices for each before."""
    model, shape = emission.model, emission.model.shape(value)
    before, behind = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    flat = model.reshaped(value, (before, shape[axis], behind), f"{stem}/rows")
    rows = np.broadcast_to(np.array(indices), (before, len(indices)))
    held = model.constant(rows, TosaType.INT32, f"{stem}/indices")
    made = (before, len(indices), behind)
    found = model.add(TosaOp.GATHER, [flat, held], f"{stem}/picked", stored.dtype, made)
    return model.reshaped(found, (*shape[:axis], len(indices), *shape[axis + 1 :]), stem)


def concat(emission: TosaEmission, step: Step) -> None:
    stored = emission.natural(step.output)
    inputs = [emission.get(name, stored) for name in step.inputs]
    axis, shape = step.attrs_as(ConcatAttrs).axis, emission.shape(step.output)
    made = emission.model.add(TosaOp.CONCAT, inputs, step.output, stored.dtype, shape, axis=axis)
    emission.put(step.output, made, stored)


def pad(emission: TosaEmission, step: Step) -> None:
    model, stored = emission.model, emission.natural(step.output)
    paddings = [size for pair in step.attrs_as(PadAttrs).paddings for size in pair]
    inputs = [
        emission.get(step.inputs[0], stored),
        model.sizes(paddings),
        model.constant(stored.zero, stored.dtype, "zero_point"),
    ]
    shape = emission.shape(step.output)
    made = model.add(TosaOp.PAD, inputs, step.output, stored.dtype, shape)
    emission.put(step.output, made, stored)


def max_pool(emission: TosaEmission, step: Step) -> None:
    attrs, model = step.attrs_as(MaxPoolAttrs), emission.model
    name = step.inputs[0]
    stored, tensor = emission.in_bytes(name), emission.tensors[name]
    if stored == WIDE:
        stored = HALF_WIDE
    if tensor.low < stored.low or tensor.high > stored.high:
        raise UnsupportedError(
            f"its codes are {tensor.low:,}..{tensor.high:,}; MAX_POOL2D has 8 or 16 bits",
            node=step.output,
            hint=OTHER_FORMAT,
        )
    image = window_of(emission, emission.get(name, stored), attrs, attrs.ksize, step.output)
    made = model.add(
        TosaOp.MAX_POOL2D,
        [image.value],
        step.output,
        stored.dtype,
        emission.shape(step.output),
        kernel=attrs.ksize,
        stride=attrs.strides,
        pad=image.pads,
        nan_mode=NAN_MODE,
    )
    if stored == HALF_WIDE:
        made, stored = model.rescaled(made, step.output, 0, WIDE), WIDE
    emission.put(step.output, made, stored)


def reduce_max(emission: TosaEmission, step: Step) -> None:
    attrs, model = step.attrs_as(ReduceMaxAttrs), emission.model
    value, stored = _source(emission, step)
    for axis in attrs.axes:
        shape = [*model.shape(value)]
        shape[axis] = 1
        value = model.add(
            TosaOp.REDUCE_MAX, [value], step.output, stored.dtype, shape,
            axis=axis, nan_mode=NAN_MODE,
        )  # fmt: skip
    made = model.reshaped(value, emission.shape(step.output), step.output)
    emission.put(step.output, made, stored)
