"""Operators on codes: sums and products of two tensors, other scales, tables."""

from __future__ import annotations

import numpy as np

from qgraph.backends.pending_layers import LayerOutput
from qgraph.backends.tflite.arithmetic import rounds_alike
from qgraph.backends.tflite.gathers import gathered
from qgraph.backends.tflite.layers import parameters, weight_codes
from qgraph.backends.tflite.writer import TensorWriter
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Array, Codes
from qgraph.program import Step

OPERATORS = {
    "add": ("ADD", "AddOptions"),
    "sub": ("SUB", "SubOptions"),
    "mul": ("MUL", "MulOptions"),
    "batch_matmul": ("BATCH_MATMUL", "BatchMatMulOptions"),
}
PRODUCTS = ("mul", "batch_matmul")


def write_binary(writer: TensorWriter, out: LayerOutput, operands: list[int]) -> None:
    """Write a sum, a difference or a product of two tensors, and its requantization."""
    step = out.pending.layer
    assert step is not None
    product, shift = step.op in PRODUCTS, out.shift
    first, second = (writer.exponent(v) for v in step.inputs)
    fits = isinstance(shift, int) and (product or first == second)
    if not fits or (first + second if product else first) - shift != writer.exponent(out.name):
        raise UnsupportedError(
            "its scale does not follow from those of its operands by one shift",
            node=out.name,
            hint="use another format",
        )
    arithmetic = writer.arithmetic
    low, high = arithmetic.addition_shifts
    if step.op == "batch_matmul":
        writer.check_rounding(out, arithmetic.layers)
        writer.check_sums(out, arithmetic.sums)
    elif product:
        writer.check_rounding(out, arithmetic.products)
        writer.check_sums(out, arithmetic.codes)
    else:
        writer.check_rounding(out, arithmetic.additions)
    if not product and not low <= int(shift) <= high:
        raise UnsupportedError(
            f"a sum is shifted by {shift}, but LiteRT adds exactly from {low} to {high} only",
            node=out.name,
            hint="use another format",
        )
    op, options = OPERATORS[step.op]
    fields = {} if step.op == "batch_matmul" else dict(writer.activation(out))
    fused = bool(fields)
    if not product:
        fields |= writer.sum_fields
    if step.op == "batch_matmul" and arithmetic.signed_matrices and writer.zero(step.inputs[1]):
        raise UnsupportedError(
            f"`{step.inputs[1]}` is stored with a zero point, so {arithmetic.executors[0]} leaves "
            "the product to kernels that round differently",
            node=out.name,
            hint="set `signed_activations: true` in the profile, or use profile `tflm`",
        )
    made = writer.result(out, fused)
    writer.model.operator(op, operands, made, options, 2, **fields)
    writer.finish(made, out, fused)


def write_codes(writer: TensorWriter, out: LayerOutput, value: int) -> None:
    """Write a tensor with another scale, other limits or an added constant. value: its source."""
    source, shift, bias = out.pending.sums, out.shift, out.pending.bias
    shifts = {int(s) for s in np.atleast_1d(np.asarray(shift))}
    if shifts == {0} and bias is None:
        writer.finish(converted(writer, value, source, out.name), out, False)
        return
    arithmetic = writer.arithmetic
    fits = isinstance(shift, int) and writer.exponent(source) - shift == writer.exponent(out.name)
    if bias is None and fits and rounds_alike(out.rounding, arithmetic.moves, shifts):
        writer.check_sums(out, arithmetic.codes)
        made = writer.result(out, False)
        writer.model.operator("QUANTIZE", [value], made, "QuantizeOptions", 2)
        writer.finish(made, out, False)
        return
    _as_depthwise(writer, out, value, np.ones(1, np.int8))


def write_scaled(writer: TensorWriter, out: LayerOutput, value: int) -> None:
    """A product with a constant for each channel and a bias: a layer. value: its first operand."""
    _as_depthwise(writer, out, value, writer.constant_codes(out.operands[1]))


def _as_depthwise(writer: TensorWriter, out: LayerOutput, value: int, factors: Array) -> None:
    """A depthwise convolution of pixels with factors of channels, which rounds like layers."""
    writer.check_rounding(out, writer.arithmetic.layers)
    writer.check_sums(out, writer.arithmetic.sums)
    source, name = out.operands[0], out.name
    shape = writer.tensors[source].shape
    factors, shift = weight_codes(out, factors.reshape(-1))
    channels = shape[-1] if shape else 1
    image = (1, 1, max(int(np.prod(shape, dtype=int)) // max(channels, 1), 0), channels)
    square = len(shape) == 4
    value = value if square else writer.reshaped(value, image, source, f"{source}/image")
    filters = np.broadcast_to(factors, channels).reshape(1, 1, 1, channels)
    weights = parameters(writer, out, filters, shift, axis=3)
    made = writer.result(out, False) if square else writer.add_tensor(name, f"{name}/image", image)
    fields = {"Padding": writer.model.enum("Padding", "VALID"), "DepthMultiplier": 1}
    fields |= dict.fromkeys(("StrideH", "StrideW", "DilationHFactor", "DilationWFactor"), 1)
    writer.model.operator(
        "DEPTHWISE_CONV_2D", [value, *weights], made, "DepthwiseConv2DOptions", 3, **fields
    )
    if not square:
        stem = f"{name}/unlimited" if writer.limits(out) else name
        made = writer.reshaped(made, shape, name, stem)
    writer.finish(made, out, False)


def converted(writer: TensorWriter, value: int, source: str, like: str) -> int:
    """Codes of `source` stored with the zero point of `like`; others saturate.

    Raises UnsupportedError if their scales differ.
    """
    if writer.exponent(source) != writer.exponent(like):
        raise UnsupportedError(
            f"has another scale than `{source}`, whose codes it holds",
            node=like,
            hint="use another format",
        )
    if writer.zero(source) == writer.zero(like):
        return value
    shape = writer.tensors[source].shape
    made = writer.add_tensor(like, f"{source}/as {like}", shape)
    return writer.model.operator("QUANTIZE", [value], made, "QuantizeOptions", 2)


def write_table(writer: TensorWriter, step: Step, value: int, table: Array, offset: int) -> int:
    """Entries of a table by code: GATHER with indices from 0, in integers only."""
    source, name, model = step.inputs[0], step.output, writer.model
    tensor = writer.tensors[source]
    places = np.arange(tensor.low, tensor.high + 1) - offset
    entries: Codes = table[np.clip(places, 0, len(table) - 1)].astype(np.int64)
    types = {kind: model.enum("TensorType", kind.upper()) for kind in (writer.stored.type, "int32")}
    wide = model.tensor(f"{name}/wide", tensor.shape, "int32")
    given, made = types.values()
    model.operator("CAST", [value], wide, "CastOptions", InDataType=given, OutDataType=made)
    lowest = np.array([-tensor.low - writer.zero(source)], np.int32)
    first = model.constant(f"{name}/first", lowest)
    index = model.tensor(f"{name}/index", tensor.shape, "int32")
    model.operator("ADD", [wide, first], index, "AddOptions")
    return gathered(writer, name, step.inputs[-1], entries, index)
