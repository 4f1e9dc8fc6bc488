"""What an op is: its type rule, its float reference and its integer reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.types import Array, Codes, Fixed, Shape, TensorType

Attrs = Mapping[str, Any]
Infer = Callable[[Attrs, Sequence[TensorType]], TensorType]
Evaluate = Callable[[Attrs, Sequence[Any]], Any]
Integer = Callable[[Attrs, Sequence[Fixed]], Fixed]


@dataclass(frozen=True)
class OpDef:
    """One op, in one place.

    `infer` is the type rule for the (first) output, `evaluate` the float reference in numpy
    (in the dtype of its inputs), `integer` the integer reference on codes, None where the op
    exists in float only. `moves` marks ops that only move values: codes and scale pass
    through. `same_scale` marks ops that need all data inputs on one scale.
    """

    name: str
    arity: tuple[int, int | None]
    infer: Infer
    evaluate: Evaluate | None = None
    integer: Integer | None = None
    attrs: tuple[str, ...] = ()
    moves: bool = False
    same_scale: bool = False
    pointwise: bool = False

    def types(self, attrs: Attrs, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """Output types. Raises GraphError where arity, attributes or input types do not fit."""
        low, high = self.arity
        if len(inputs) < low or (high is not None and len(inputs) > high):
            expected = str(low) if low == high else f"{low} to {high or 'any number of'}"
            raise GraphError(f"takes {expected} inputs, found {len(inputs)}")
        missing = [name for name in self.attrs if name not in attrs]
        if missing:
            raise GraphError(f"attribute `{missing[0]}` is missing")
        if self.name == "opaque":
            return tuple(attrs["types"])
        return (self.infer(attrs, inputs),)


def same_as_first(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    return inputs[0]


def broadcast_shapes(shapes: Sequence[Shape | None]) -> Shape | None:
    """Numpy broadcasting with unknown dimensions. Raises GraphError where it cannot hold."""
    if any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    rank = max(len(shape) for shape in known)
    padded = [(1,) * (rank - len(shape)) + shape for shape in known]
    result: list[int | None] = []
    for dims in zip(*padded, strict=True):
        fixed = {d for d in dims if d is not None and d != 1}
        if len(fixed) > 1:
            raise GraphError(f"shapes do not broadcast: {known}")
        result.append(fixed.pop() if fixed else (None if None in dims else 1))
    return tuple(result)


def broadcast(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    """Type rule of elementwise ops: one dtype, broadcast shapes."""
    dtypes = {t.dtype for t in inputs}
    if len(dtypes) > 1:
        raise GraphError(f"inputs have different dtypes: {sorted(dtypes)}")
    return TensorType(inputs[0].dtype, broadcast_shapes([t.shape for t in inputs]))


def one_scale(inputs: Sequence[Fixed]) -> int | Codes:
    """The exponent that all inputs share. Raises GraphError if they do not."""
    first = inputs[0].exponent
    if any(not np.array_equal(first, other.exponent) for other in inputs[1:]):
        raise GraphError(f"inputs are on different scales: {[str(i.exponent) for i in inputs]}")
    return first


def moved(evaluate: Callable[[Attrs, Sequence[Array]], Array]) -> Integer:
    """The integer rule of an op that only moves values: the same motion, on codes."""

    def integer(attrs: Attrs, inputs: Sequence[Fixed]) -> Fixed:
        codes: Any = evaluate(attrs, [i.codes for i in inputs])
        return Fixed(codes, one_scale(inputs))

    return integer
