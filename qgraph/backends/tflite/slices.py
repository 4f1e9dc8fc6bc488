"""Moves that TFLM has no operator for, as slices, concatenations and pools.

Tensors are turned into [outer, size, inner] with the moved axis in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qgraph.backends.tflite.writer import TensorWriter
from qgraph.errors import UnsupportedError
from qgraph.program import Step
from qgraph.program.ops import PadAttrs, ReduceMaxAttrs, SliceAttrs, TakeAttrs

MOST_JOINED = 10  # inputs of CONCATENATION in TFLM
MOST_SLICED_AXES, MOST_PADDED_AXES = 4, 5  # of STRIDED_SLICE and PAD in TFLM
MOST_SLICES = 200  # instead of a GATHER; TFLM plans memory for 1,024 tensors


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
        runs = runs_of(indices)
        if len(runs) > MOST_SLICES:
            raise UnsupportedError(
                f"picks {len(indices):,} indices, which are {len(runs):,} slices: TFLM has no "
                f"GATHER of {writer.stored.type}",
                node=name,
                hint="use another format",
            )
        shapes = [(outer, len(run), inner) for run in runs]
        values = [
            _slice(writer, value, run, shape, name) for run, shape in zip(runs, shapes, strict=True)
        ]
        value = values[0] if len(values) == 1 else joined(writer, values, shapes, 1, name)
    if times > 1:
        rows = (outer, len(indices), 1, inner)
        value = writer.reshaped(value, rows, name, f"{name}/once")
        value = joined(writer, [value] * times, [rows] * times, 2, name)
    return writer.reshaped(value, writer.tensors[name].shape, name, name)


def write_slices_by_axis(writer: TensorWriter, step: Step, value: int) -> int:
    """A slice of several axes, one after the other."""
    name, shape = step.output, [*writer.tensors[step.inputs[0]].shape]
    for axis, part in enumerate(step.attrs_as(SliceAttrs).parts):
        run = range(shape[axis])[part]
        if run != range(shape[axis]):
            outer, inner = _around(shape, axis, axis)
            value = writer.reshaped(value, (outer, shape[axis], inner), name, f"{name}/rows")
            value = _slice(writer, value, run, (outer, len(run), inner), name)
            shape[axis] = len(run)
    return writer.reshaped(value, writer.tensors[name].shape, name, name)


def write_pads_by_axis(writer: TensorWriter, step: Step, value: int) -> int:
    """Zeros around several axes, one after the other."""
    name, shape = step.output, [*writer.tensors[step.inputs[0]].shape]
    for axis, pair in enumerate(step.attrs_as(PadAttrs).paddings):
        if any(pair):
            outer, inner = _around(shape, axis, axis)
            value = writer.reshaped(value, (outer, shape[axis], inner), name, f"{name}/rows")
            shape[axis] += sum(pair)
            numbers = np.array([(0, 0), pair, (0, 0)], np.int32)
            pads = writer.model.constant(f"{name}/pads", numbers)
            made = writer.add_tensor(name, f"{name}/padded", (outer, shape[axis], inner))
            value = writer.model.operator("PAD", [value, pads], made, "PadOptions", 2)
    return writer.reshaped(value, writer.tensors[name].shape, name, name)


def unrepeated(indices: Sequence[int]) -> tuple[list[int], int]:
    """Indices without repetitions, and how often each is repeated: 0 0 1 1 are 0 1, twice."""
    for times in range(len(indices), 1, -1):
        if len(indices) % times == 0:
            rows = np.reshape(indices, (-1, times))
            if (rows == rows[:, :1]).all():
                return [int(i) for i in rows[:, 0]], times
    return [*indices], 1


def runs_of(indices: Sequence[int]) -> list[range]:
    """The slices that give these indices, one after the other."""
    runs: list[list[int]] = []
    for index in indices:
        last = runs[-1] if runs else []
        stride = index - last[-1] if last else 0
        if stride and (len(last) == 1 or stride == last[1] - last[0]):
            last.append(index)
        else:
            runs.append([index])
    strides = [run[1] - run[0] if len(run) > 1 else 1 for run in runs]
    return [range(r[0], r[-1] + s // abs(s), s) for r, s in zip(runs, strides, strict=True)]


def _slice(writer: TensorWriter, value: int, run: range, shape: Sequence[int], name: str) -> int:
    outer, _, inner = shape
    open_end = run.stop < 0  # a slice back to the first element
    numbers = [
        writer.model.constant(f"{name}/{stem}", np.array(held, np.int32))
        for stem, held in (
            ("begin", (0, run.start, 0)),
            ("end", (outer, 0 if open_end else run.stop, inner)),
            ("strides", (1, run.step, 1)),
        )
    ]
    made, mask = writer.add_tensor(name, f"{name}/slice", shape), 0b010 if open_end else 0
    return writer.model.operator(
        "STRIDED_SLICE", [value, *numbers], made, "StridedSliceOptions", 2, EndMask=mask
    )


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
