"""Activations. ReLU and ReLU6 act on codes; the other pointwise ones become tables.

`POINTWISE` is the one list of functions that may become a table (docs/numerics.md, 3); each
takes and returns an array and is evaluated in float64 when a table is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from qgraph.ir.ops.base import Attrs, Evaluate, OpDef, same_as_first
from qgraph.ir.types import Fixed

PointwiseFunction = Callable[[Attrs, Any], Any]


def sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def _elu(attrs: Attrs, x: Any) -> Any:
    return np.where(x > 0, x, attrs.get("alpha", 1.0) * np.expm1(np.minimum(x, 0))).astype(x.dtype)


def _selu(attrs: Attrs, x: Any) -> Any:
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return (scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))).astype(x.dtype)


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


def _gelu(attrs: Attrs, x: Any) -> Any:
    if attrs.get("approximate", False):
        return (0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))).astype(x.dtype)
    return (0.5 * x * (1 + _erf(x / np.sqrt(2.0)))).astype(x.dtype)


def _hard_sigmoid(attrs: Attrs, x: Any) -> Any:
    """relu6(x + 3) / 6, the form used by MobileNetV3; or clip(alpha * x + beta, 0, 1)."""
    if "alpha" in attrs:
        return np.clip(attrs["alpha"] * x + attrs["beta"], 0, 1).astype(x.dtype)
    return np.minimum(np.maximum(x + 3, 0), 6) / 6


POINTWISE: Mapping[str, PointwiseFunction] = {
    "sigmoid": lambda attrs, x: sigmoid(x),
    "tanh": lambda attrs, x: np.tanh(x),
    "swish": lambda attrs, x: x * sigmoid(x),
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": lambda attrs, x: x * _hard_sigmoid(attrs, x),
    "elu": _elu,
    "selu": _selu,
    "gelu": _gelu,
    "softplus": lambda attrs, x: np.logaddexp(x, 0),
    "softsign": lambda attrs, x: x / (1 + np.abs(x)),
    "erf": lambda attrs, x: _erf(x),
}


def _evaluate(function: PointwiseFunction) -> Evaluate:
    return lambda attrs, inputs: function(attrs, inputs[0])


def _relu(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    return np.maximum(inputs[0], 0)


def _relu6(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    return np.clip(inputs[0], 0, 6)


def _leaky_relu(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    x = inputs[0]
    return np.where(x > 0, x, x * x.dtype.type(attrs["alpha"]))


def _integer_relu(attrs: Attrs, inputs: Sequence[Fixed]) -> Fixed:
    return Fixed(np.maximum(inputs[0].codes, 0), inputs[0].exponent)


def six_code(exponent: Any) -> Any:
    """The code of 6 on a grid of step 2^-exponent, to the nearest where 6 is not on it.

    On grids so fine that 6 takes more than 62 bits it is out of reach of any code.
    """
    return np.rint(np.ldexp(6.0, np.minimum(exponent, 59))).astype(np.int64)


def _integer_relu6(attrs: Attrs, inputs: Sequence[Fixed]) -> Fixed:
    x = inputs[0]
    return Fixed(np.clip(x.codes, 0, six_code(x.exponent)), x.exponent)


def _softmax(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    x, axis = inputs[0], attrs.get("axis", -1)
    e = np.exp(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=axis, keepdims=True)


def _log_softmax(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    x = inputs[0] - inputs[0].max(axis=-1, keepdims=True, initial=-np.inf)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


OPS = (
    OpDef("relu", (1, 1), same_as_first, _relu, _integer_relu),
    OpDef("relu6", (1, 1), same_as_first, _relu6, _integer_relu6),
    OpDef("leaky_relu", (1, 1), same_as_first, _leaky_relu, attrs=("alpha",)),
    *(
        OpDef(name, (1, 1), same_as_first, _evaluate(f), pointwise=True)
        for name, f in POINTWISE.items()
    ),
    OpDef("softmax", (1, 1), same_as_first, _softmax),
    OpDef("log_softmax", (1, 1), same_as_first, _log_softmax),
)
