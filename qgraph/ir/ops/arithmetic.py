"""Elementwise arithmetic. Sums need one scale, products add their exponents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops.attributes import MarkedAttrs
from qgraph.ir.ops.base import (
    NO_FORMAT,
    AnyOp,
    Elements,
    FormatNames,
    OpDef,
    Scale,
    Shapes,
    as_its_inputs,
    as_one_input,
    broadcast,
    broadcast_shapes,
    can_be_negative,
    never_negative,
    one_scale,
    reach_of_inputs,
    same_as_first,
)
from qgraph.ir.ops.linear import product_exponent
from qgraph.ir.types import Array, Fixed, TensorType
from qgraph.ops.attributes import A, Attributes, attribute
from qgraph.ops.reach import (
    Ranged,
    Reach,
    reach_of_difference,
    reach_of_product,
    reach_of_sum,
)

BinaryFunction = Callable[[Array, Array], Array]
UnaryFunction = Callable[[Array], Array]
Nonnegative = Callable[[Attributes, Sequence[bool]], bool]


@dataclass(frozen=True, kw_only=True)
class CastAttrs(Attributes):
    """The type of elements after a cast."""

    dtype: str = attribute("numpy's name of the type")


def _product(attrs: MarkedAttrs, inputs: Sequence[Fixed]) -> Fixed:
    return Fixed(inputs[0].codes * inputs[1].codes, product_exponent(*inputs))


def _comparison(attrs: Attributes, inputs: Sequence[TensorType]) -> TensorType:
    return TensorType("bool", broadcast(attrs, inputs).shape)


def _select_type(attrs: Attributes, inputs: Sequence[TensorType]) -> TensorType:
    if inputs[0].dtype != "bool":
        raise GraphError(f"the condition must be bool, found {inputs[0]}")
    kind = broadcast(attrs, inputs[1:])
    return kind.with_shape(broadcast_shapes([t.shape for t in inputs]))


def _cast_type(attrs: CastAttrs, inputs: Sequence[TensorType]) -> TensorType:
    return TensorType(attrs.dtype, inputs[0].shape)


def _cast(attrs: CastAttrs, inputs: Sequence[Array]) -> Array:
    return inputs[0].astype(attrs.dtype)


def _sum_reach(attrs: MarkedAttrs, inputs: Sequence[Ranged], shapes: Shapes) -> Reach:
    return reach_of_sum(*inputs)


def _difference_reach(attrs: MarkedAttrs, inputs: Sequence[Ranged], shapes: Shapes) -> Reach:
    return reach_of_difference(*inputs)


def _product_reach(attrs: MarkedAttrs, inputs: Sequence[Ranged], shapes: Shapes) -> Reach:
    return reach_of_product(*inputs)


def reach_of_abs(x: Ranged) -> Reach:
    return Reach(max(x.low, -x.high, 0), max(-x.low, x.high), x.magnitude)


def _of_codes(
    name: str,
    function: BinaryFunction,
    reach: Callable[[MarkedAttrs, Sequence[Ranged], Shapes], Reach],
    nonnegative: Nonnegative,
    formats: FormatNames,
) -> AnyOp:
    """Arithmetic of codes on one scale."""
    return OpDef(
        name,
        (2, 2),
        MarkedAttrs,
        broadcast,
        lambda attrs, inputs: function(inputs[0], inputs[1]),
        lambda attrs, inputs: Fixed(function(inputs[0].codes, inputs[1].codes), one_scale(inputs)),
        scale=Scale.SHARED,
        reach=reach,
        nonnegative=nonnegative,
        elementwise=True,
        formats=formats,
        takes=Elements.NUMBERS,
    )


def _binary(
    name: str,
    function: BinaryFunction,
    formats: FormatNames = NO_FORMAT,
    infer: Callable[[A, Sequence[TensorType]], TensorType] = broadcast,
    takes: Elements = Elements.NUMBERS,
    nonnegative: Nonnegative = can_be_negative,
) -> AnyOp:
    return OpDef(
        name, (2, 2), MarkedAttrs, infer, lambda attrs, inputs: function(inputs[0], inputs[1]),
        nonnegative=nonnegative, elementwise=True, formats=formats, takes=takes,
    )  # fmt: skip


def _unary(
    name: str,
    function: UnaryFunction,
    formats: FormatNames = NO_FORMAT,
    nonnegative: Nonnegative = can_be_negative,
    takes: Elements = Elements.FLOATS,
) -> AnyOp:
    return OpDef(
        name, (1, 1), Attributes, same_as_first, lambda attrs, inputs: function(inputs[0]),
        nonnegative=nonnegative, elementwise=True, formats=formats, takes=takes,
    )  # fmt: skip


_of_all = partial(FormatNames, of_integers=True)


COMPARISONS: dict[str, BinaryFunction] = {
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
}

# Functions of floats that TensorFlow and ONNX have by the same name.
FUNCTIONS: dict[str, UnaryFunction] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sign": np.sign,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}

OPS: tuple[AnyOp, ...] = (
    _of_codes("add", np.add, _sum_reach, as_its_inputs, _of_all("AddV2", "Add")),
    _of_codes("sub", np.subtract, _difference_reach, can_be_negative, _of_all("Sub", "Sub")),
    _of_codes("maximum", np.maximum, reach_of_inputs, as_one_input, _of_all("Maximum", "Max")),
    _of_codes("minimum", np.minimum, reach_of_inputs, as_its_inputs, _of_all("Minimum", "Min")),
    OpDef(
        "mul", (2, 2), MarkedAttrs, broadcast, lambda attrs, inputs: inputs[0] * inputs[1],
        _product, scale=Scale.PRODUCT, reach=_product_reach, nonnegative=as_its_inputs,
        elementwise=True, formats=_of_all("Mul", "Mul"),
    ),
    _binary("div", np.divide, FormatNames("RealDiv", "Div"), takes=Elements.FLOATS),
    _binary("squared_difference", lambda a, b: (a - b) * (a - b), _of_all("SquaredDifference")),
    _binary(
        "pow", np.power, FormatNames("Pow", "Pow"), nonnegative=lambda attrs, inputs: inputs[0]
    ),
    _unary("neg", np.negative, _of_all("Neg", "Neg"), takes=Elements.NUMBERS),
    OpDef(
        "abs", (1, 1), Attributes, same_as_first, lambda attrs, inputs: np.abs(inputs[0]),
        lambda attrs, inputs: Fixed(np.abs(inputs[0].codes), inputs[0].exponent),
        scale=Scale.KEPT, reach=lambda attrs, inputs, shapes: reach_of_abs(inputs[0]),
        nonnegative=never_negative, elementwise=True, formats=_of_all("Abs", "Abs"),
    ),
    _unary("exp", np.exp, FormatNames("Exp", "Exp"), never_negative),
    _unary("expm1", np.expm1, FormatNames("Expm1")),
    _unary("log", np.log, FormatNames("Log", "Log")),
    _unary("log1p", np.log1p, FormatNames("Log1p")),
    _unary("sqrt", np.sqrt, FormatNames("Sqrt", "Sqrt"), never_negative),
    _unary("rsqrt", lambda x: 1 / np.sqrt(x), FormatNames("Rsqrt"), never_negative),
    _unary("square", np.square, _of_all("Square"), never_negative, Elements.NUMBERS),
    _unary("reciprocal", np.reciprocal, FormatNames("Reciprocal", "Reciprocal")),
    *(
        _unary(name, function, FormatNames(name.capitalize(), name.capitalize()))
        for name, function in FUNCTIONS.items()
    ),
    *(
        _binary(name, function, infer=_comparison, takes=Elements.ANY)
        for name, function in COMPARISONS.items()
    ),
    _binary("logical_and", np.logical_and, takes=Elements.BOOLS),
    _binary("logical_or", np.logical_or, takes=Elements.BOOLS),
    _unary("logical_not", np.logical_not, takes=Elements.BOOLS),
    # condition, value where it is true, value where it is false
    OpDef(
        "select", (3, 3), Attributes, _select_type, lambda attrs, inputs: np.where(*inputs),
        nonnegative=lambda attrs, inputs: all(inputs[1:]), elementwise=True,
    ),
    OpDef("cast", (1, 1), CastAttrs, _cast_type, _cast, elementwise=True),
)  # fmt: skip
