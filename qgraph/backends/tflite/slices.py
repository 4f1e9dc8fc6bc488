"""Moves of int16 codes that TFLM has no operator for, as slices, concatenations and pools.

Tensors are turned into [outer, size, inner] with the moved axis in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qgraph.backends.tflite.writer import TensorWriter
from qgraph.program import Step
from qgraph.program.ops import ReduceMaxAttrs, TakeAttrs

MOST_JOINED = 10  # inputs of CONCATENATION in TFLM


def joined(
    writer: TensorWriter,
    values: Sequence[int],
    shapes: Sequence[Sequence[int]],
    axis: int,
    like: str,
    made: int | None = None,
) -> int:
    """Tensors of these shapes, one after the other, stored like a tensor of the program.

    made: the tensor for the result.
    """
    while len(values) > MOST_JOINED:
        parts = [slice(i, i + MOST_JOINED) for i in range(0, len(values), MOST_JOINED)]
        values = [joined(writer, values[p], shapes[p], axis, like) for p in parts]
        shapes = [_joined_shape(shapes[p], axis) for p in parts]
    if made is None:
        made = writer.add_tensor(like, f"{like}/joined", _joined_shape(shapes, axis))
    return writer.model.operator(
        "CONCATENATION", values, made, "ConcatenationOptions", 2, Axis=axis
    )


def _joined_shape(shapes: Sequence[Sequence[int]], axis: int) -> list[int]:
    first, size = shapes[0], sum(shape[axis] for shape in shapes)
    return [*first[:axis], size, *first[axis + 1 :]]


def write_slices(writer: TensorWriter, step: Step, value: int) -> int:
    """Indices along an axis: slices, joined again; then each element as often as it is repeated."""
    attrs, name = step.attrs_as(TakeAttrs), step.output
    shape = writer.tensors[step.inputs[0]].shape
    outer, inner = _around(shape, attrs.axis, attrs.axis)
    indices, times = unrepeated(attrs.indices)
    value = writer.reshaped(value, (outer, shape[attrs.axis], inner), name, f"{name}/rows")
    if indices != [*range(shape[attrs.axis])]:
        parts = [(run, len(range(*run))) for run in runs_of(indices)]
        values = [_slice(writer, value, run, (outer, size, inner), name) for run, size in parts]
        shapes = [(outer, size, inner) for _, size in parts]
        value = values[0] if len(values) == 1 else joined(writer, values, shapes, 1, name)
    if times > 1:
        rows = (outer, len(indices), 1, inner)
        value = writer.reshaped(value, rows, name, f"{name}/once")
        value = joined(writer, [value] * times, [rows] * times, 2, name)
    return writer.reshaped(value, writer.tensors[name].shape, name, name)


def unrepeated(indices: Sequence[int]) -> tuple[list[int], int]:
    """Indices without repetitions, and how often each is repeated: 0 0 1 1 are 0 1, twice."""
    for times in range(len(indices), 1, -1):
        if len(indices) % times == 0:
            rows = np.reshape(indices, (-1, times))
            if (rows == rows[:, :1]).all():
                return [int(i) for i in rows[:, 0]], times
    return [*indices], 1


def runs_of(indices: Sequence[int]) -> list[tuple[int, int, int]]:
    """Begins, ends and strides of the slices that give these indices, one after the other."""
    runs: list[list[int]] = []
    for index in indices:
        last = runs[-1] if runs else []
        fits = last and index > last[-1]
        if fits and (len(last) == 1 or index - last[-1] == last[1] - last[0]):
            last.append(index)
        else:
            runs.append([index])
    return [(run[0], run[-1] + 1, run[1] - run[0] if len(run) > 1 else 1) for run in runs]


def _slice(
    writer: TensorWriter, value: int, run: tuple[int, int, int], shape: Sequence[int], name: str
) -> int:
    begin, end, stride = run
    outer, _, inner = shape
    numbers = [
        writer.model.constant(f"{name}/{stem}", np.array(held, np.int32))
        for stem, held in (
            ("begin", (0, begin, 0)),
            ("end", (outer, end, inner)),
            ("strides", (1, stride, 1)),
        )
    ]
    made = writer.add_tensor(name, f"{name}/slice", shape)
    return writer.model.operator("STRIDED_SLICE", [value, *numbers], made, "StridedSliceOptions", 2)


def write_pools(writer: TensorWriter, step: Step, value: int) -> int:
    """The largest codes along axes: a pool over each group of axes that are side by side."""
    axes, name = step.attrs_as(ReduceMaxAttrs).axes, step.output
    shape = [*writer.tensors[step.inputs[0]].shape]
    for first, last in reversed(side_by_side(axes)):
        outer, inner = _around(shape, first, last)
        size = int(np.prod(shape[first : last + 1]))
        value = writer.reshaped(value, (outer, size, 1, inner), name, f"{name}/image")
        made = writer.add_tensor(name, f"{name}/largest", (outer, 1, 1, inner))
        fields = {"Padding": writer.model.enum("Padding", "VALID"), "StrideH": 1, "StrideW": 1}
        value = writer.model.operator(
            "MAX_POOL_2D", [value], made, "Pool2DOptions", 2,
            FilterHeight=size, FilterWidth=1, **fields,
        )  # fmt: skip
        shape[first : last + 1] = [1] * (last + 1 - first)
    return writer.reshaped(value, writer.tensors[name].shape, name, name)


def side_by_side(axes: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last of each group of ascending axes without a gap."""
    groups: list[tuple[int, int]] = []
    for axis in axes:
        if groups and groups[-1][1] == axis - 1:
            groups[-1] = (groups[-1][0], axis)
        else:
            groups.append((axis, axis))
    return groups


def _around(shape: Sequence[int], first: int, last: int) -> tuple[int, int]:
    """The number of elements before and behind axes."""
    return int(np.prod(shape[:first])), int(np.prod(shape[last + 1 :]))
