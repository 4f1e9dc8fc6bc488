"""Sums of products: convolutions and products of matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qgraph.backends.tosa.emission import TosaEmission
from qgraph.backends.tosa.graph_builder import WIDE
from qgraph.backends.tosa.tosa_file import TosaOp, TosaType
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Array
from qgraph.program import Step
from qgraph.program.ops import Conv2dAttrs, MaxPoolAttrs, WindowAttrs

FILTERS = (3, 0, 1, 2)  # from [h, w, inputs, outputs] to TOSA's [outputs, h, w, inputs]


@dataclass(frozen=True)
class TosaWindow:
    """An image that windows fill exactly, as TOSA requires, and its pads.

    pads: top, bottom, left, right.
    """

    value: str
    pads: tuple[int, ...]


def window_of(
    emission: TosaEmission,
    value: str,
    attrs: WindowAttrs | MaxPoolAttrs,
    kernel: tuple[int, int],
    stem: str,
) -> TosaWindow:
    """Leave out rows and columns behind the last window: pads first, then parts of the image."""
    dilations = attrs.dilations if isinstance(attrs, WindowAttrs) else (1, 1)
    shape, pads = [*emission.model.shape(value)], []
    for axis in (0, 1):
        before, after = attrs.pads[axis]
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        rest = (shape[axis + 1] + before + after - reach) % attrs.strides[axis]
        cut = max(0, rest - after)
        shape[axis + 1] -= cut
        if shape[axis + 1] < 1:
            raise UnsupportedError(
                "its windows contain only padding", node=stem, hint="remove the layer"
            )
        pads += [before, after - (rest - cut)]
    kept = emission.model.cut(value, [0] * 4, shape, f"{stem}/used")
    return TosaWindow(kept, tuple(pads))


def product(emission: TosaEmission, step: Step) -> None:
    """A layer without a bias."""
    emission.put(step.output, layer(emission, step, None, step.output), WIDE)


def layer(emission: TosaEmission, step: Step, bias: Array | None, output: str) -> str:
    """The sums of a layer, with its bias. output: the tensor that they are."""
    outputs = emission.tensors[step.output].shape[-1]
    added = np.zeros(1, np.int64) if bias is None else np.broadcast_to(bias.reshape(-1), outputs)
    held = emission.model.constant(added, TosaType.INT32, f"{output}/bias")
    if step.op == "matmul":
        return _matmul(emission, step, held, output)
    return _convolution(emission, step, held, output)


def _convolution(emission: TosaEmission, step: Step, bias: str, output: str) -> str:
    attrs = step.attrs_as(WindowAttrs)
    kh, kw = emission.tensors[step.inputs[1]].shape[:2]
    x, zero = emission.bytes_of(step.inputs[0], "its input", step)
    used = window_of(emission, x, attrs, (kh, kw), output)
    if step.op == "depthwise_conv2d":
        w, w_zero = emission.bytes_of(step.inputs[1], "its filter", step)
        return _windows(
            emission, step, TosaOp.DEPTHWISE_CONV2D, used, (w, bias), (zero, w_zero), output
        )
    w, w_zero = _turned(emission, step)
    groups = step.attrs_as(Conv2dAttrs).groups
    parts = [
        _windows(emission, step, TosaOp.CONV2D, TosaWindow(image, used.pads), (f, b),
                 (zero, w_zero), output)
        for image, f, b in zip(
            _split(emission, used.value, 3, groups, output),
            _split(emission, w, 0, groups, output),
            _split(emission, bias, 0, groups, output),
            strict=True,
        )
    ]  # fmt: skip
    if groups == 1:
        return parts[0]
    shape = emission.shape(step.output)
    return emission.model.add(TosaOp.CONCAT, parts, output, TosaType.INT32, shape, axis=3)


def _split(emission: TosaEmission, value: str, axis: int, groups: int, stem: str) -> list[str]:
    """Equal parts of a value along an axis. One number is not divided."""
    shape = emission.model.shape(value)
    if groups == 1 or shape[axis] == 1:
        return [value] * groups
    size = [*shape]
    size[axis] //= groups
    start = [0] * len(shape)
    found = []
    for group in range(groups):
        start[axis] = group * size[axis]
        found.append(emission.model.cut(value, start, size, f"{stem}/group"))
    return found


def _turned(emission: TosaEmission, step: Step) -> tuple[str, int]:
    """Filters in TOSA's order of axes, and their zero point."""
    name = step.inputs[1]
    value, zero = emission.bytes_of(name, "its filter", step)
    if name in emission.program.constants:
        codes = np.asarray(emission.program.constants[name]).transpose(FILTERS)
        return emission.constant(codes, emission.natural(name), name), zero
    shape = [emission.model.shape(value)[axis] for axis in FILTERS]
    turned = emission.model.add(
        TosaOp.TRANSPOSE, [value], f"{name}/turned", TosaType.INT8, shape, perms=FILTERS
    )
    return turned, zero


def _windows(
    emission: TosaEmission,
    step: Step,
    op: TosaOp,
    image: TosaWindow,
    held: tuple[str, str],
    zeros: tuple[int, int],
    output: str,
) -> str:
    attrs, model = step.attrs_as(WindowAttrs), emission.model
    batch, height, width, channels = emission.shape(step.output)
    if op is TosaOp.CONV2D:
        channels = model.shape(held[0])[0]
    inputs = [
        image.value,
        *held,
        model.constant(zeros[0], TosaType.INT8, "zero_point"),
        model.constant(zeros[1], TosaType.INT8, "zero_point"),
    ]
    return model.add(
        op,
        inputs,
        output,
        TosaType.INT32,
        (batch, height, width, channels),
        pad=image.pads,
        stride=attrs.strides,
        dilation=attrs.dilations,
        local_bound=False,
        acc_type=int(TosaType.INT32),
    )


def _matmul(emission: TosaEmission, step: Step, bias: str, output: str) -> str:
    """A convolution of images with one pixel: TOSA 1.0 has no fully connected layer."""
    model = emission.model
    x, zero = emission.bytes_of(step.inputs[0], "its input", step)
    rows, terms = model.shape(x)
    weights = step.inputs[1]
    w, w_zero = emission.bytes_of(weights, "its matrix", step)
    outputs = model.shape(w)[1]
    if weights in emission.program.constants:
        codes = np.asarray(emission.program.constants[weights]).T.reshape(outputs, 1, 1, terms)
        w = emission.constant(codes, emission.natural(weights), weights)
    else:
        turned = model.add(
            TosaOp.TRANSPOSE, [w], f"{weights}/turned", TosaType.INT8, (outputs, terms),
            perms=(1, 0),
        )  # fmt: skip
        w = model.reshaped(turned, (outputs, 1, 1, terms), f"{weights}/turned")
    image = model.reshaped(x, (rows, 1, 1, terms), f"{step.inputs[0]}/pixels")
    inputs = [
        image,
        w,
        bias,
        model.constant(zero, TosaType.INT8, "zero_point"),
        model.constant(w_zero, TosaType.INT8, "zero_point"),
    ]
    made = model.add(
        TosaOp.CONV2D,
        inputs,
        f"{output}/pixels",
        TosaType.INT32,
        (rows, 1, 1, outputs),
        pad=(0, 0, 0, 0),
        stride=(1, 1),
        dilation=(1, 1),
        local_bound=False,
        acc_type=int(TosaType.INT32),
    )
    return model.reshaped(made, (rows, outputs), output)


def batch_matmul(emission: TosaEmission, step: Step) -> None:
    model = emission.model
    shape = emission.shape(step.output)
    inputs, zeros = [], []
    for name in step.inputs:
        value, zero = emission.bytes_of(name, "its operand", step)
        inputs.append(_matrices(emission, value, shape[:-2], name))
        zeros.append(model.constant(zero, TosaType.INT8, "zero_point"))
    made = model.add(
        TosaOp.MATMUL,
        [*inputs, *zeros],
        step.output,
        TosaType.INT32,
        (math.prod(shape[:-2]), *shape[-2:]),
    )
    emission.put(step.output, model.reshaped(made, shape, step.output), WIDE)


def _matrices(emission: TosaEmission, value: str, front: tuple[int, ...], stem: str) -> str:
    """A value as [matrices, rows, columns], repeated to the sizes in front of its matrices."""
    model = emission.model
    rows, columns = model.shape(value)[-2:]
    own = model.shape(value)[:-2]
    own = (*(1,) * (len(front) - len(own)), *own)
    value = model.reshaped(value, (*own, rows, columns), f"{stem}/axes")
    repeats = [wanted // have for wanted, have in zip(front, own, strict=True)]
    if any(r > 1 for r in repeats):
        inputs = [value, model.sizes([*repeats, 1, 1])]
        shape = (*front, rows, columns)
        value = model.add(TosaOp.TILE, inputs, f"{stem}/repeated", TosaType.INT8, shape)
    return model.reshaped(value, (math.prod(front), rows, columns), f"{stem}/matrices")
