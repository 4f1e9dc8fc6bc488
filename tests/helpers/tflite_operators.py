"""Single operators of `.tflite` files on many codes, and their results in each executor.

All codes of int8, and pairs of them; of int16 all codes, and drawn pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.backends.tflite.arithmetic import BYTES, StoredCodes, TfliteArithmetic, TfliteExecutor
from qgraph.backends.tflite.executors import sessions_of
from qgraph.backends.tflite.model_builder import QuantizedScale, TfliteModelBuilder

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


def every_code(stored: StoredCodes) -> np.ndarray:
    """A square image of all codes."""
    side = 1 << stored.bits // 2
    return np.arange(stored.low, stored.high + 1).astype(stored.type).reshape(1, side, side, 1)


def biases_of(stored: StoredCodes) -> np.ndarray:
    """Biases with which every code gives all sums of a range, such as -8192 to 8191 for int8."""
    count = 32 if stored == BYTES else 4
    return (1 << stored.bits) * np.arange(-count, count)


def layer(
    op: str,
    shift: int,
    zero: int = 0,
    biases: np.ndarray | None = None,
    stored: StoredCodes = BYTES,
    codes: np.ndarray | None = None,
) -> tuple[TfliteModelBuilder, np.ndarray, np.ndarray]:
    """A layer that adds biases to codes; also its input, and its sums.

    zero: the zero point of its input and output. codes: an image [1, h, w, 1], of all codes by
    default.
    """
    biases = biases_of(stored) if biases is None else biases
    model, count = TfliteModelBuilder("layer"), len(biases)
    x, out = QuantizedScale(X_EXPONENT, zero), QuantizedScale(X_EXPONENT + W_EXPONENT - shift, zero)
    sums = QuantizedScale((X_EXPONENT + W_EXPONENT,) * count)
    given = every_code(stored) if codes is None else codes.astype(stored.type)
    options, version, fields = "Conv2DOptions", 3, WINDOW
    shape, filters, axis = (*given.shape[:3], count), np.ones((count, 1, 1, 1), np.int8), 0
    if op == "DEPTHWISE_CONV_2D":
        options, fields = "DepthwiseConv2DOptions", {**WINDOW, "DepthMultiplier": 1}
        given, filters, axis = np.repeat(given, count, 3), np.ones((1, 1, 1, count), np.int8), 3
    elif op == "FULLY_CONNECTED":
        options, version, fields = "FullyConnectedOptions", 12, {}
        given, filters = given.reshape(-1, 1), np.ones((count, 1), np.int8)
        shape = (given.size, count)
    weights = QuantizedScale((W_EXPONENT,) * count, 0, axis)
    inputs = [
        model.tensor("x", given.shape, stored.type, x),
        model.constant("w", filters, weights),
        model.constant("b", biases.astype(stored.biases), sums),
    ]
    model.inputs["x"] = inputs[0]
    made = model.tensor("y", shape, stored.type, out)
    model.outputs["y"] = model.operator(op, inputs, made, options, version, **fields)
    return model, given, (given.astype(np.int64) - zero + biases).reshape(shape)


def pairs(
    op: str, shift: int, zeros: tuple[int, int, int], arithmetic: TfliteArithmetic
) -> Mapping[str, object]:
    """An operator on pairs of codes: the model, its inputs, and its results before rounding.

    zeros: zero points of both operands and of the result. Products that executors do not shift
    without an error are 0.
    """
    stored, product = arithmetic.stored, op == "MUL"
    if stored == BYTES:
        a, b = (one.reshape(1, 256, 256, 1) for one in np.meshgrid(*2 * [every_code(stored)]))
    else:
        a, b = drawn_pairs(stored)
    first, second = a.astype(np.int64) - zeros[0], b.astype(np.int64) - zeros[1]
    if product:
        a = np.where(np.abs(first * second) > arithmetic.codes.largest_at(shift), zeros[0], a)
        first = a.astype(np.int64) - zeros[0]
    exponents = (X_EXPONENT, W_EXPONENT if product else X_EXPONENT)
    out = sum(exponents) if product else X_EXPONENT
    model = TfliteModelBuilder("pairs")
    for name, exponent, zero in zip("ab", exponents, zeros, strict=False):
        model.inputs[name] = model.tensor(
            name, a.shape, stored.type, QuantizedScale(exponent, zero)
        )
    made = model.tensor("y", a.shape, stored.type, QuantizedScale(out - shift, zeros[2]))
    fields = {} if product or stored == BYTES else {"PotScaleInt16": False}
    model.outputs["y"] = model.operator(
        op, [*model.inputs.values()], made, f"{op.capitalize()}Options", 2, **fields
    )
    exact = {"ADD": first + second, "SUB": first - second, "MUL": first * second}[op]
    return {"model": model, "inputs": [a.astype(stored.type), b], "exact": exact}


def drawn_pairs(stored: StoredCodes) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of random codes of every magnitude, and all pairs of the ends with codes near 0."""
    rng, shape = np.random.default_rng(0), (1, 256, 256, 1)
    drawn = [
        rng.integers(stored.low, stored.high + 1, shape) >> rng.integers(0, stored.bits, shape)
        for _ in range(2)
    ]
    special = np.array([stored.low, stored.low + 1, *range(-8, 8), stored.high - 1, stored.high])
    for one, ends in zip(drawn, np.meshgrid(special, special), strict=True):
        one.reshape(-1)[: ends.size] = ends.ravel()
    first, second = (one.astype(stored.type) for one in drawn)
    return first, second


def matrices(
    shift: int, zero: int, stored: StoredCodes
) -> tuple[TfliteModelBuilder, list[np.ndarray], np.ndarray]:
    """A product of two random activations; also its inputs and its sums.

    zero: the zero point of the first one.
    """
    rng, model = np.random.default_rng(shift), TfliteModelBuilder("matrices")
    a, b = (rng.integers(-128, 128, s).astype(stored.type) for s in ((4, 64, 24), (4, 24, 32)))
    for name, array, scale in (
        ("a", a, QuantizedScale(X_EXPONENT, zero)),
        ("b", b, QuantizedScale(W_EXPONENT)),
    ):
        model.inputs[name] = model.tensor(name, array.shape, stored.type, scale)
    scale = QuantizedScale(X_EXPONENT + W_EXPONENT - shift)
    made = model.tensor("y", (4, 64, 32), stored.type, scale)
    inputs = [*model.inputs.values()]
    model.outputs["y"] = model.operator("BATCH_MATMUL", inputs, made, "BatchMatMulOptions", 2)
    return model, [a, b], np.matmul(a.astype(np.int64) - zero, b.astype(np.int64))


def quantizer(
    source: str, shift: int, zero: int, values: np.ndarray, stored: StoredCodes = BYTES
) -> TfliteModelBuilder:
    """QUANTIZE of floats at exponent 0, or of codes with zero point 0 to another scale."""
    model, floats = TfliteModelBuilder("quantizer"), source == "float32"
    scale = None if floats else QuantizedScale(X_EXPONENT)
    exponent = -shift if floats else X_EXPONENT - shift
    model.inputs["x"] = model.tensor("x", values.shape, source, scale)
    made = model.tensor("y", values.shape, stored.type, QuantizedScale(exponent, zero))
    model.outputs["y"] = model.operator("QUANTIZE", [model.inputs["x"]], made, "QuantizeOptions", 2)
    return model
