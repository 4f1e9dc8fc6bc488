"""Elementwise arithmetic. Sums need one scale, products add their exponents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops.base import (
    Attrs,
    Evaluate,
    Integer,
    OpDef,
    broadcast,
    broadcast_shapes,
    one_scale,
    same_as_first,
)
from qgraph.ir.ops.linear import product_exponent
from qgraph.ir.types import Fixed, TensorType


def _binary(function: Callable[[Any, Any], Any]) -> Evaluate:
    return lambda attrs, inputs: function(inputs[0], inputs[1])


def _unary(function: Callable[[Any], Any]) -> Evaluate:
    return lambda attrs, inputs: function(inputs[0])


def _one_scale(function: Callable[[Any, Any], Any]) -> Integer:
    return lambda attrs, inputs: Fixed(
        function(inputs[0].codes, inputs[1].codes), one_scale(inputs)
    )


def _product(attrs: Attrs, inputs: Sequence[Fixed]) -> Fixed:
    return Fixed(inputs[0].codes * inputs[1].codes, product_exponent(*inputs))


def _comparison(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    return TensorType("bool", broadcast(attrs, inputs).shape)


def _select_type(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    if inputs[0].dtype != "bool":
        raise GraphError(f"the condition must be bool, found {inputs[0]}")
    kind = broadcast(attrs, inputs[1:])
    return kind.with_shape(broadcast_shapes([t.shape for t in inputs]))


def _cast_type(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    return TensorType(attrs["dtype"], inputs[0].shape)


def _cast(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    return inputs[0].astype(attrs["dtype"])


SAME_SCALE = {
    "add": np.add,
    "sub": np.subtract,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
FLOAT_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "div": np.divide,
    "squared_difference": lambda a, b: (a - b) * (a - b),
    "pow": np.power,
}
FLOAT_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "square": np.square,
    "reciprocal": np.reciprocal,
    "floor": np.floor,
}

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
}
LOGICAL: dict[str, Callable[[Any, Any], Any]] = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
}

OPS = (
    *(
        OpDef(name, (2, 2), broadcast, _binary(f), _one_scale(f), same_scale=True)
        for name, f in SAME_SCALE.items()
    ),
    OpDef("mul", (2, 2), broadcast, _binary(np.multiply), _product),
    *(OpDef(name, (2, 2), broadcast, _binary(f)) for name, f in FLOAT_BINARY.items()),
    *(OpDef(name, (1, 1), same_as_first, _unary(f)) for name, f in FLOAT_UNARY.items()),
    *(OpDef(name, (2, 2), _comparison, _binary(f)) for name, f in COMPARISONS.items()),
    *(OpDef(name, (2, 2), broadcast, _binary(f)) for name, f in LOGICAL.items()),
    OpDef("logical_not", (1, 1), same_as_first, _unary(np.logical_not)),
    # condition, value where it is true, value where it is false
    OpDef("select", (3, 3), _select_type, lambda attrs, inputs: np.where(*inputs)),
    OpDef("cast", (1, 1), _cast_type, _cast, attrs=("dtype",)),
)
