"""Operators that move codes, or choose among them: exact in every executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from qgraph.backends.tflite.flat_tables import FieldValue
from qgraph.backends.tflite.layers import pad, padding_of
from qgraph.backends.tflite.slices import (
    MOST_PADDED_AXES,
    MOST_SLICED_AXES,
    joined,
    write_pads_by_axis,
    write_pools,
    write_slices,
    write_slices_by_axis,
)
from qgraph.backends.tflite.writer import TensorWriter
from qgraph.program import Step
from qgraph.program.ops import (
    ConcatAttrs,
    MaxPoolAttrs,
    PadAttrs,
    ReduceMaxAttrs,
    SliceAttrs,
    TakeAttrs,
    TransposeAttrs,
)


def _moved(
    emission: TensorWriter,
    step: Step,
    op: str,
    *others: int,
    options: str,
    version: int = 2,
    value: int | None = None,
    **fields: FieldValue,
) -> None:
    """An operator on the input of a step, and constants."""
    name = step.output
    value = emission.get_like(step.inputs[0], name) if value is None else value
    emission.held[name] = emission.model.operator(
        op, [value, *others], emission.add_tensor(name), options, version, **fields
    )


def _integers(emission: TensorWriter, step: Step, stem: str, numbers: npt.ArrayLike) -> int:
    held = np.asarray(numbers, np.int32)
    return emission.model.constant(f"{step.output}/{stem}", held)


def _reshape(emission: TensorWriter, step: Step) -> None:
    name = step.output
    shape, value = emission.tensors[name].shape, emission.get_like(step.inputs[0], name)
    emission.held[name] = emission.reshaped(value, shape, name, name)


def _transpose(emission: TensorWriter, step: Step) -> None:
    """Axes that stay side by side are one axis: TFLM does not transpose six."""
    (x,), name = step.inputs, step.output
    perm = step.attrs_as(TransposeAttrs).perm
    sizes, order = joined_axes(emission.tensors[x].shape, perm)
    numbers = _integers(emission, step, "order", order)
    value = emission.get_like(x, name)
    if len(order) == len(perm):
        _moved(emission, step, "TRANSPOSE", numbers, options="TransposeOptions", value=value)
        return
    value = emission.reshaped(value, sizes, name, f"{name}/joined")
    made = emission.add_tensor(name, f"{name}/turned", [sizes[axis] for axis in order])
    value = emission.model.operator("TRANSPOSE", [value, numbers], made, "TransposeOptions", 2)
    emission.held[name] = emission.reshaped(value, emission.tensors[name].shape, name, name)


def joined_axes(shape: Sequence[int], perm: Sequence[int]) -> tuple[list[int], list[int]]:
    """The same transpose on fewer axes: its sizes before, and its order.

    Axes of size 1 are left out, and axes that follow each other before and after are one.
    """
    groups: list[list[int]] = []
    for axis in (axis for axis in perm if shape[axis] != 1):
        before = groups[-1][-1] if groups else None
        if (
            before is not None
            and all(shape[a] == 1 for a in range(before + 1, axis))
            and (axis > before)
        ):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    places = sorted(groups) or [[0]]
    sizes = [int(np.prod([shape[axis] for axis in group])) for group in places]
    return sizes, [places.index(group) for group in groups or places]


def _slice(emission: TensorWriter, step: Step) -> None:
    attrs = step.attrs_as(SliceAttrs)
    if len(attrs.begin) > MOST_SLICED_AXES:
        value = emission.get_like(step.inputs[0], step.output)
        emission.held[step.output] = write_slices_by_axis(emission, step, value)
        return
    to_the_end = [axis for axis, end in enumerate(attrs.end) if end is None]
    ends = [0 if end is None else end for end in attrs.end]
    numbers = [
        _integers(emission, step, stem, held)
        for stem, held in (("begin", attrs.begin), ("end", ends), ("strides", attrs.strides))
    ]
    mask = sum(1 << axis for axis in to_the_end)
    _moved(emission, step, "STRIDED_SLICE", *numbers, options="StridedSliceOptions", EndMask=mask)


def _concat(emission: TensorWriter, step: Step) -> None:
    name = step.output
    values = [emission.get_like(value, name) for value in step.inputs]
    shapes = [emission.tensors[value].shape for value in step.inputs]
    axis, made = step.attrs_as(ConcatAttrs).axis, emission.add_tensor(name)
    emission.held[name] = joined(emission, values, shapes, axis, name, made)


def _pad(emission: TensorWriter, step: Step) -> None:
    name, paddings = step.output, step.attrs_as(PadAttrs).paddings
    if len(paddings) > MOST_PADDED_AXES:
        value = emission.get_like(step.inputs[0], name)
        emission.held[name] = write_pads_by_axis(emission, step, value)
        return
    value, made = emission.get_like(step.inputs[0], name), emission.add_tensor(name)
    emission.held[name] = pad(emission, step.inputs[0], value, paddings, made=made)


def _take(emission: TensorWriter, step: Step) -> None:
    attrs = step.attrs_as(TakeAttrs)
    if emission.arithmetic.gathers_bytes_only:
        value = emission.get_like(step.inputs[0], step.output)
        emission.held[step.output] = write_slices(emission, step, value)
        return
    indices = _integers(emission, step, "indices", attrs.indices)
    _moved(emission, step, "GATHER", indices, options="GatherOptions", Axis=attrs.axis)


def _max_pool(emission: TensorWriter, step: Step) -> None:
    attrs, x = step.attrs_as(MaxPoolAttrs), step.inputs[0]
    value, sizes = emission.get_like(x, step.output), emission.tensors[x].shape[1:3]
    padding = padding_of(sizes, attrs.ksize, attrs.strides, (1, 1), attrs.pads)
    if padding is None:  # the lowest code is never larger than a code of the image
        value = pad(emission, x, value, ((0, 0), *attrs.pads, (0, 0)), stored=emission.stored.low)
    _moved(
        emission,
        step,
        "MAX_POOL_2D",
        options="Pool2DOptions",
        value=value,
        Padding=emission.model.enum("Padding", padding or "VALID"),
        StrideH=attrs.strides[0],
        StrideW=attrs.strides[1],
        FilterHeight=attrs.ksize[0],
        FilterWidth=attrs.ksize[1],
    )


def _reduce_max(emission: TensorWriter, step: Step) -> None:
    attrs = step.attrs_as(ReduceMaxAttrs)
    if emission.arithmetic.gathers_bytes_only:
        value = emission.get_like(step.inputs[0], step.output)
        emission.held[step.output] = write_pools(emission, step, value)
        return
    axes = _integers(emission, step, "axes", attrs.axes)
    _moved(emission, step, "REDUCE_MAX", axes, options="ReducerOptions", KeepDims=attrs.keepdims)


def _larger(emission: TensorWriter, step: Step) -> None:
    _chosen(emission, step, "MAXIMUM")


def _smaller(emission: TensorWriter, step: Step) -> None:
    _chosen(emission, step, "MINIMUM")


def _chosen(emission: TensorWriter, step: Step, op: str) -> None:
    """The larger or the smaller of two codes; saturation to the result's range changes neither."""
    name = step.output
    values = [emission.get_like(value, name) for value in step.inputs]
    emission.held[name] = emission.model.operator(
        op, values, emission.add_tensor(name), "MaximumMinimumOptions", 2
    )


LOWERINGS: Mapping[str, Callable[[TensorWriter, Step], None]] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "take": _take,
    "max_pool": _max_pool,
    "reduce_max": _reduce_max,
    "maximum": _larger,
    "minimum": _smaller,
}
