"""Activations. ReLU and ReLU6 act on codes; the other pointwise ones become tables.

`POINTWISE` is the one list of functions that may become a table (docs/numerics.md, 3); each
takes and returns an array and is evaluated in float64 when a table is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.ir.ops.attributes import AxisAttrs, MarkedAttrs
from qgraph.ir.ops.base import (
    NO_FORMAT,
    AnyOp,
    Elements,
    FormatNames,
    OpDef,
    Scale,
    Shapes,
    always,
    can_be_negative,
    never_negative,
    same_as_first,
)
from qgraph.ir.types import AnyExponent, Array, Codes, Fixed
from qgraph.ops.attributes import Attributes, attribute
from qgraph.ops.reach import Ranged, Reach

PointwiseFunction = Callable[[Any, Array], Array]


@dataclass(frozen=True, kw_only=True)
class LeakyReluAttrs(Attributes):
    """A leaky ReLU."""

    alpha: float = attribute("slope below 0")


@dataclass(frozen=True, kw_only=True)
class EluAttrs(Attributes):
    """An ELU, which is exponential below 0."""

    alpha: float = attribute("minus the limit below 0", default=1.0)


@dataclass(frozen=True, kw_only=True)
class GeluAttrs(Attributes):
    """A GELU."""

    approximate: bool = attribute("by tanh instead of erf", default=False)


@dataclass(frozen=True, kw_only=True)
class HardSigmoidAttrs(Attributes):
    """clip(alpha * x + beta, 0, 1); relu6(x + 3) / 6 without attributes."""

    alpha: float | None = attribute("slope", default=None)
    beta: float | None = attribute("value at 0", default=None)


@dataclass(frozen=True, kw_only=True)
class SoftmaxAttrs(AxisAttrs):
    """A softmax."""

    axis: int = attribute("along which results add up to 1", default=-1)


@dataclass(frozen=True, kw_only=True)
class LogSoftmaxAttrs(AxisAttrs):
    """The logarithm of a softmax."""

    axis: int = attribute("the last one", choices=(-1,), default=-1)


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def _elu(attrs: EluAttrs, x: Array) -> Array:
    return np.where(x > 0, x, attrs.alpha * np.expm1(np.minimum(x, 0))).astype(x.dtype)


SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def _selu(attrs: Attributes, x: Array) -> Array:
    below = SELU_ALPHA * np.expm1(np.minimum(x, 0))
    return (SELU_SCALE * np.where(x > 0, x, below)).astype(x.dtype)


def _erf(x: Array) -> Array:
    result: Array = np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)
    return result


def _gelu(attrs: GeluAttrs, x: Array) -> Array:
    if attrs.approximate:
        tanh = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
        approximate: Array = (0.5 * x * (1 + tanh)).astype(x.dtype)
        return approximate
    result: Array = (0.5 * x * (1 + _erf(x / np.sqrt(2.0)))).astype(x.dtype)
    return result


def _hard_sigmoid(attrs: HardSigmoidAttrs, x: Array) -> Array:
    """relu6(x + 3) / 6, the form used by MobileNetV3; or clip(alpha * x + beta, 0, 1)."""
    if attrs.alpha is not None and attrs.beta is not None:
        return np.clip(attrs.alpha * x + attrs.beta, 0, 1).astype(x.dtype)
    result: Array = np.minimum(np.maximum(x + 3, 0), 6) / 6
    return result


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


_ATTRIBUTES: Mapping[str, type[Attributes]] = {
    "elu": EluAttrs,
    "gelu": GeluAttrs,
    "hard_sigmoid": HardSigmoidAttrs,
    "hard_swish": HardSigmoidAttrs,
}
_FORMATS: Mapping[str, FormatNames] = {
    "sigmoid": FormatNames("Sigmoid", "Sigmoid"),
    "tanh": FormatNames("Tanh", "Tanh"),
    "hard_swish": FormatNames(onnx="HardSwish"),
    "elu": FormatNames("Elu", "Elu"),
    "selu": FormatNames("Selu", "Selu"),
    "softplus": FormatNames("Softplus", "Softplus"),
    "softsign": FormatNames("Softsign", "Softsign"),
    "erf": FormatNames("Erf", "Erf"),
}
_NEVER_NEGATIVE = frozenset({"sigmoid", "hard_sigmoid", "softplus"})


def _pointwise(name: str, function: PointwiseFunction) -> AnyOp:
    return OpDef(
        name,
        (1, 1),
        _ATTRIBUTES.get(name, Attributes),
        same_as_first,
        lambda attrs, inputs: function(attrs, inputs[0]),
        nonnegative=never_negative if name in _NEVER_NEGATIVE else can_be_negative,
        elementwise=True,
        pointwise=True,
        formats=_FORMATS.get(name, NO_FORMAT),
        takes=Elements.FLOATS,
    )


def _relu(attrs: Attributes, inputs: Sequence[Array]) -> Array:
    return np.maximum(inputs[0], 0)


def _relu6(attrs: Attributes, inputs: Sequence[Array]) -> Array:
    return np.clip(inputs[0], 0, 6)


def _relu_in_place(attrs: Attributes, inputs: Sequence[Array]) -> Array:
    return np.maximum(inputs[0], 0, out=inputs[0])


def _relu6_in_place(attrs: Attributes, inputs: Sequence[Array]) -> Array:
    return np.clip(inputs[0], 0, 6, out=inputs[0])


def _leaky_relu(attrs: LeakyReluAttrs, inputs: Sequence[Array]) -> Array:
    x = inputs[0]
    return np.where(x > 0, x, x * x.dtype.type(attrs.alpha))


def _integer_relu(attrs: Attributes, inputs: Sequence[Fixed]) -> Fixed:
    return Fixed(np.maximum(inputs[0].codes, 0), inputs[0].exponent)


def six_code(exponent: AnyExponent) -> Codes:
    """The code of 6 for a step of 2^-exponent, rounded to the nearest.

    If 6 needs more than 62 bits, the result is larger than any code.
    """
    result: Codes = np.rint(np.ldexp(6.0, np.minimum(exponent, 59))).astype(np.int64)
    return result


def _integer_relu6(attrs: Attributes, inputs: Sequence[Fixed]) -> Fixed:
    x = inputs[0]
    return Fixed(np.clip(x.codes, 0, six_code(x.exponent)), x.exponent)


def _softmax(attrs: SoftmaxAttrs, inputs: Sequence[Array]) -> Array:
    x, axis = inputs[0], attrs.axis
    e = np.exp(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
    result: Array = e / e.sum(axis=axis, keepdims=True)
    return result


def _log_softmax(attrs: Attributes, inputs: Sequence[Array]) -> Array:
    x = inputs[0] - inputs[0].max(axis=-1, keepdims=True, initial=-np.inf)
    result: Array = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return result


def _rectified(attrs: MarkedAttrs, inputs: Sequence[Ranged], shapes: Shapes) -> Reach:
    return Reach(max(inputs[0].low, 0), max(inputs[0].high, 0), inputs[0].magnitude)


def _rectifier(
    name: str,
    evaluate: Callable[[Attributes, Sequence[Array]], Array],
    integer: Callable[[Attributes, Sequence[Fixed]], Fixed],
    in_place: Callable[[Attributes, Sequence[Array]], Array],
    formats: FormatNames,
) -> AnyOp:
    return OpDef(
        name, (1, 1), MarkedAttrs, same_as_first, evaluate, integer,
        scale=Scale.KEPT, reach=_rectified, nonnegative=never_negative, elementwise=True,
        in_place=in_place, owns=True, formats=formats, takes=Elements.NUMBERS,
    )  # fmt: skip


OPS: tuple[AnyOp, ...] = (
    _rectifier(
        "relu", _relu, _integer_relu, _relu_in_place,
        FormatNames("Relu", "Relu", of_integers=True),
    ),
    _rectifier(
        "relu6", _relu6, _integer_relu6, _relu6_in_place, FormatNames("Relu6", of_integers=True)
    ),
    OpDef(
        "leaky_relu", (1, 1), LeakyReluAttrs, same_as_first, _leaky_relu, elementwise=True,
        takes=Elements.FLOATS,
    ),
    *(_pointwise(name, function) for name, function in POINTWISE.items()),
    OpDef(
        "softmax", (1, 1), SoftmaxAttrs, same_as_first, _softmax,
        nonnegative=never_negative, separate=always, takes=Elements.FLOATS,
    ),
    OpDef(
        "log_softmax", (1, 1), LogSoftmaxAttrs, same_as_first, _log_softmax, separate=always,
        formats=FormatNames("LogSoftmax"), takes=Elements.FLOATS,
    ),
)  # fmt: skip
