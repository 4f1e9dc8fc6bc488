"""Single operators of `.tflite` files on every code, and their results in each executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.backends.tflite.arithmetic import TfliteExecutor
from qgraph.backends.tflite.executors import sessions_of
from qgraph.backends.tflite.model_builder import QuantizedScale, TfliteModelBuilder

CODES = np.arange(-128, 128)
BIASES = 256 * np.arange(-32, 32)  # with every code, all sums from -8320 to 8191
WINDOW = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
X_EXPONENT, W_EXPONENT = 4, 5


def run_operator(
    executor: TfliteExecutor, model: TfliteModelBuilder, inputs: Sequence[np.ndarray]
) -> np.ndarray:
    """The first output of a model of one operator."""
    for session in sessions_of(executor, model.model({})):
        session.run(inputs)
        found = session.tensor(next(iter(model.outputs.values()))).astype(np.int64)
    return found


def layer(
    op: str, shift: int, zero: int = 0, biases: np.ndarray = BIASES
) -> tuple[TfliteModelBuilder, np.ndarray, np.ndarray]:
    """A layer that adds biases to every code; also its input, and its sums.

    zero: the zero point of its input and output.
    """
    model, count = TfliteModelBuilder("layer"), len(biases)
    x, out = QuantizedScale(X_EXPONENT, zero), QuantizedScale(X_EXPONENT + W_EXPONENT - shift, zero)
    sums = QuantizedScale((X_EXPONENT + W_EXPONENT,) * count)
    stored = CODES.astype(np.int8).reshape(1, 16, 16, 1)
    options, version, fields = "Conv2DOptions", 3, WINDOW
    shape, filters, axis = (1, 16, 16, count), np.ones((count, 1, 1, 1), np.int8), 0
    if op == "DEPTHWISE_CONV_2D":
        options, fields = "DepthwiseConv2DOptions", {**WINDOW, "DepthMultiplier": 1}
        stored, filters, axis = np.repeat(stored, count, 3), np.ones((1, 1, 1, count), np.int8), 3
    elif op == "FULLY_CONNECTED":
        options, version, fields = "FullyConnectedOptions", 12, {}
        stored, filters, shape = stored.reshape(-1, 1), np.ones((count, 1), np.int8), (256, count)
    weights = QuantizedScale((W_EXPONENT,) * count, 0, axis)
    inputs = [
        model.tensor("x", stored.shape, "int8", x),
        model.constant("w", filters, weights),
        model.constant("b", biases.astype(np.int32), sums),
    ]
    model.inputs["x"] = inputs[0]
    made = model.tensor("y", shape, "int8", out)
    model.outputs["y"] = model.operator(op, inputs, made, options, version, **fields)
    return model, stored, (stored.astype(np.int64) - zero + biases).reshape(shape)


def pairs(op: str, shift: int, zeros: tuple[int, int, int]) -> Mapping[str, object]:
    """An operator on every pair of codes: the model, its inputs, and its results before rounding.

    zeros: zero points of both operands and of the result.
    """
    a, b = (one.reshape(1, 256, 256, 1) for one in np.meshgrid(CODES, CODES))
    product = op == "MUL"
    exponents = (X_EXPONENT, W_EXPONENT if product else X_EXPONENT)
    out = sum(exponents) if product else X_EXPONENT
    model = TfliteModelBuilder("pairs")
    for name, exponent, zero in zip("ab", exponents, zeros, strict=False):
        model.inputs[name] = model.tensor(name, a.shape, "int8", QuantizedScale(exponent, zero))
    made = model.tensor("y", a.shape, "int8", QuantizedScale(out - shift, zeros[2]))
    options = f"{op.capitalize()}Options"
    model.outputs["y"] = model.operator(op, [*model.inputs.values()], made, options, 2)
    first, second = a - zeros[0], b - zeros[1]
    exact = {"ADD": first + second, "SUB": first - second, "MUL": first * second}[op]
    return {"model": model, "inputs": [a.astype(np.int8), b.astype(np.int8)], "exact": exact}


def matrices(shift: int, zero: int) -> tuple[TfliteModelBuilder, list[np.ndarray], np.ndarray]:
    """A product of two random activations; also its inputs and its sums.

    zero: the zero point of the first one.
    """
    rng, model = np.random.default_rng(shift), TfliteModelBuilder("matrices")
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((4, 64, 24), (4, 24, 32)))
    for name, array, scale in (
        ("a", a, QuantizedScale(X_EXPONENT, zero)),
        ("b", b, QuantizedScale(W_EXPONENT)),
    ):
        model.inputs[name] = model.tensor(name, array.shape, "int8", scale)
    made = model.tensor("y", (4, 64, 32), "int8", QuantizedScale(X_EXPONENT + W_EXPONENT - shift))
    inputs = [*model.inputs.values()]
    model.outputs["y"] = model.operator("BATCH_MATMUL", inputs, made, "BatchMatMulOptions", 2)
    return model, [a, b], np.matmul(a.astype(np.int64) - zero, b.astype(np.int64))


def quantizer(source: str, shift: int, zero: int, values: np.ndarray) -> TfliteModelBuilder:
    """QUANTIZE of floats at exponent 0, or of codes with zero point 0 to another scale."""
    model = TfliteModelBuilder("quantizer")
    scale = QuantizedScale(X_EXPONENT) if source == "int8" else None
    exponent = X_EXPONENT - shift if source == "int8" else -shift
    model.inputs["x"] = model.tensor("x", values.shape, source, scale)
    made = model.tensor("y", values.shape, "int8", QuantizedScale(exponent, zero))
    model.outputs["y"] = model.operator("QUANTIZE", [model.inputs["x"]], made, "QuantizeOptions", 2)
    return model
