"""Layers as operators: convolutions and products of matrices with constant weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.backends.pending_layers import LayerOutput
from qgraph.backends.tflite.arithmetic import BYTES
from qgraph.backends.tflite.model_builder import QuantizedScale
from qgraph.backends.tflite.writer import TensorWriter
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Array, Codes, Rounding
from qgraph.ops.attribute_types import Pads, Pair
from qgraph.program import Step
from qgraph.program.ops import WindowAttrs

DEPTHWISE = "depthwise_conv2d"


def write_window(writer: TensorWriter, out: LayerOutput, image: int) -> None:
    """Write a convolution and its requantization. image: the number of its input."""
    step = _layer(out)
    writer.check_rounding(out, writer.arithmetic.layers)
    writer.check_sums(out, writer.arithmetic.sums)
    weights = writer.constant_codes(step.inputs[1])
    fused = writer.activation(out)
    if out.pending.factors is None:
        made = writer.result(out, bool(fused))
        _window(writer, out, image, weights, made, fused)
    else:
        made = _by_position(writer, out, image, weights, out.pending.factors, fused)
    writer.finish(made, out, bool(fused))


def _by_position(
    writer: TensorWriter,
    out: LayerOutput,
    image: int,
    weights: Array,
    factors: Array,
    fused: Mapping[str, int],
) -> int:
    """Sums times a map: a layer for each factor, and a selection by position."""
    known = np.unique(factors)
    if len(known) == 1:
        return _window(
            writer, out, image, weights * known[0], writer.result(out, bool(fused)), fused
        )
    value = 0
    for i, factor in enumerate(known):
        part = writer.add_tensor(out.name, f"{out.name}/times {factor}")
        _window(writer, out, image, weights * factor, part, fused)
        last = i == len(known) - 1
        made = part
        if i:
            mask = writer.model.constant(f"{out.name}/places of {factor}", factors == factor)
            made = writer.result(out, bool(fused)) if last else writer.add_tensor(
                out.name, f"{out.name}/selected"
            )  # fmt: skip
            writer.model.operator("SELECT_V2", [mask, part, value], made, "SelectV2Options")
        value = made
    return value


def _window(
    writer: TensorWriter,
    out: LayerOutput,
    image: int,
    weights: Array,
    made: int,
    fused: Mapping[str, int],
) -> int:
    step = _layer(out)
    window, depthwise = step.attrs_as(WindowAttrs), step.op == DEPTHWISE
    kernel = weights.shape[:2]
    codes, shift = weight_codes(out, weights)
    image, padding = _padded(writer, step.inputs[0], image, kernel, window)
    fields = {
        "Padding": writer.model.enum("Padding", padding),
        "StrideH": window.strides[0],
        "StrideW": window.strides[1],
        "DilationHFactor": window.dilations[0],
        "DilationWFactor": window.dilations[1],
        **fused,
    }
    if depthwise:
        filters = codes.reshape(1, *kernel, -1)
        fields["DepthMultiplier"] = weights.shape[3]
        inputs = [image, *parameters(writer, out, filters, shift, axis=3)]
        op, options = "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"
    else:
        filters = codes.transpose(3, 0, 1, 2)
        inputs = [image, *parameters(writer, out, filters, shift, axis=0)]
        op, options = "CONV_2D", "Conv2DOptions"
    return writer.model.operator(op, inputs, made, options, 3, **fields)


def write_matmul(writer: TensorWriter, out: LayerOutput, rows: int) -> None:
    """Write a product of matrices and its requantization. rows: the number of its input."""
    step, name, model = _layer(out), out.name, writer.model
    writer.check_rounding(out, writer.arithmetic.layers)
    writer.check_sums(out, writer.arithmetic.sums)
    codes, shift = weight_codes(out, writer.constant_codes(step.inputs[1]))
    fused = writer.activation(out)
    filters, count = codes.T, writer.tensors[step.inputs[0]].shape[0]
    made = writer.result(out, bool(fused))
    if writer.arithmetic.fully_connected:
        inputs = [rows, *parameters(writer, out, filters, shift, axis=0, shared=True)]
        version = 4 if len({*np.atleast_1d(np.asarray(shift)).tolist()}) == 1 else 12
        model.operator("FULLY_CONNECTED", inputs, made, "FullyConnectedOptions", version, **fused)
    else:
        # Executors round FULLY_CONNECTED differently, and convolutions alike.
        outputs, terms = filters.shape
        image = writer.reshaped(rows, (count, 1, 1, terms), step.inputs[0], f"{name}/image")
        filters = filters.reshape(outputs, 1, 1, terms)
        inputs = [image, *parameters(writer, out, filters, shift, axis=0)]
        sums = writer.add_tensor(name, f"{name}/channels", (count, 1, 1, outputs))
        fields = dict.fromkeys(("StrideH", "StrideW", "DilationHFactor", "DilationWFactor"), 1)
        fields["Padding"] = model.enum("Padding", "VALID")
        model.operator("CONV_2D", inputs, sums, "Conv2DOptions", 3, **fields, **fused)
        sizes = np.asarray((count, outputs), np.int32)
        held = model.constant(f"{name}/shape", sizes)
        model.operator("RESHAPE", [sums, held], made, "ReshapeOptions", NewShape=sizes)
    writer.finish(made, out, bool(fused))


def weight_codes(out: LayerOutput, weights: Array) -> tuple[Array, int | Codes]:
    """Weights in int8, and the shift behind their sums.

    Codes that do not fit are halved if all are even: except by `double`, halves of even sums are
    rounded to the same code. Raises UnsupportedError for others.
    """
    shift = out.shift
    while weights.size and not BYTES.low <= weights.min() <= weights.max() <= BYTES.high:
        if (weights & 1).any() or out.rounding == Rounding.DOUBLE:
            raise UnsupportedError(
                f"its weights are {weights.min()}..{weights.max()}, which do not fit in int8",
                node=out.name,
                hint="use a profile with `bits.constant: 7`, such as `litert` or `tflm`",
            )
        weights, shift = weights // 2, shift - 1
    return weights.astype(np.int8), shift


def parameters(
    writer: TensorWriter,
    out: LayerOutput,
    filters: Array,
    shift: int | Codes,
    axis: int,
    shared: bool = False,
) -> list[int]:
    """Filters in int8 and biases, with the scales from which executors derive the shift.

    Equal scales of all channels are written once for each channel: XNNPACK on Arm has kernels for
    one scale that round differently. shared: they are written once for all channels.
    """
    source, weights = out.operands
    writer.check_left_shift(out, int(np.min(shift)))
    channels, x = filters.shape[axis], writer.exponent(source)
    found = np.broadcast_to(np.asarray(shift, np.int64) + writer.exponent(out.name) - x, channels)
    exponents = tuple(int(e) for e in found)
    if shared and len(set(exponents)) == 1:
        exponents = exponents[:1]
    bias = out.pending.bias
    held = np.zeros(channels, np.int64) if bias is None else bias.reshape(-1)
    kind = np.iinfo(writer.stored.biases)
    if held.size and not kind.min <= held.min() <= held.max() <= kind.max:
        raise UnsupportedError(f"its bias does not fit in {kind.bits} bits", node=out.name)
    sums = tuple(e + x for e in exponents)
    if filters.size and filters.min() == BYTES.low:
        writer.lowest_weights.append(out.name)
    biases = np.broadcast_to(held, channels).astype(kind.dtype)
    return [
        writer.model.constant(weights, filters, QuantizedScale(exponents, 0, axis)),
        writer.model.constant(f"{out.name}/bias", biases, QuantizedScale(sums)),
    ]


def _padded(
    writer: TensorWriter, x: str, image: int, kernel: Sequence[int], window: WindowAttrs
) -> tuple[int, str]:
    """The image with zeros around it, or the padding by which the operator adds them."""
    sizes = writer.tensors[x].shape[1:3]
    padding = padding_of(sizes, kernel, window.strides, window.dilations, window.pads)
    if padding is not None:
        return image, padding
    return pad(writer, x, image, ((0, 0), *window.pads, (0, 0))), "VALID"


def pad(
    writer: TensorWriter,
    x: str,
    value: int,
    paddings: Sequence[Pair],
    stored: int | None = None,
    made: int | None = None,
) -> int:
    """A tensor with zeros around it, or with a stored code. made: the tensor for the result."""
    shape = [size + sum(pair) for size, pair in zip(writer.tensors[x].shape, paddings, strict=True)]
    pads = writer.model.constant(f"{x}/pads", np.asarray(paddings, np.int32))
    made = writer.add_tensor(x, f"{x}/padded", shape) if made is None else made
    if stored is None:
        return writer.model.operator("PAD", [value, pads], made, "PadOptions", 2)
    edge = writer.model.constant(
        f"{x}/edge", np.array([stored], writer.stored.type), writer.scale_of(x)
    )
    return writer.model.operator("PADV2", [value, pads, edge], made, "PadV2Options", 2)


def padding_of(
    sizes: Sequence[int], kernel: Sequence[int], strides: Pair, dilations: Pair, pads: Pads
) -> str | None:
    """TFLite's name of a padding; None if it has none."""

    def same(size: int, taps: int, stride: int, dilation: int) -> Pair:
        reach = (taps - 1) * dilation + 1
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        return total // 2, total - total // 2

    if all(tuple(pair) == (0, 0) for pair in pads):
        return "VALID"
    along = zip(sizes, kernel, strides, dilations, strict=True)
    return "SAME" if [same(*axis) for axis in along] == [tuple(pair) for pair in pads] else None


def _layer(out: LayerOutput) -> Step:
    step = out.pending.layer
    assert step is not None
    return step
