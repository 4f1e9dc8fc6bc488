"""Ops that give a graph its shape: inputs, constants, quantizers, tables and unknown ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from qgraph import numerics
from qgraph.errors import ExactnessError, GraphError
from qgraph.ir.ops.base import AnyOp, OpDef, Scale, Shapes
from qgraph.ir.ops.composed import TABLES, Steps
from qgraph.ir.types import (
    OVERFLOWS,
    ROLES,
    ROUNDINGS,
    Array,
    Codes,
    Fixed,
    QuantSpec,
    TensorType,
    type_of,
)
from qgraph.ops.attributes import Attributes, attribute, attributes_of, declarations
from qgraph.ops.reach import Ranged, Reach


@dataclass(frozen=True, kw_only=True)
class InputAttrs(Attributes):
    """An input of the graph."""

    type: TensorType = attribute("of the input tensor")
    state: str | None = attribute("the output that it follows, one step later", default=None)


@dataclass(frozen=True, kw_only=True)
class ConstantAttrs(Attributes):
    """A constant."""

    value: Array = attribute("its elements")


@dataclass(frozen=True, kw_only=True)
class QuantizerAttrs(Attributes):
    """A quantizer to codes of `spec`. Raises GraphError for an invalid spec."""

    spec: QuantSpec = attribute("fixed-point format of results")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_spec(self.spec)

    @property
    def exponent(self) -> int:
        """The exponent of results. Raises ExactnessError if it is not a single number."""
        if not isinstance(self.spec.exponent, int | np.integer):
            raise ExactnessError(f"the exponent of {self.spec} is not one number")
        return int(self.spec.exponent)


@dataclass(frozen=True, kw_only=True)
class TableAttrs(QuantizerAttrs):
    """A pointwise function as a table, with the attributes of the function, if it has any."""

    function: str = attribute("the op whose results the table contains", choices=(*TABLES,))
    domain: QuantSpec = attribute("fixed-point format of inputs")
    alpha: float | None = attribute("of the function", default=None)
    beta: float | None = attribute("of the function", default=None)
    approximate: bool | None = attribute("of the function", default=None)
    steps: Steps | None = attribute("of the function", default=None)
    log2_steps: int | None = attribute("of the function", default=None)
    first: int | None = attribute("of the function", default=None)
    values: tuple[float, ...] | None = attribute("of the function", default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_spec(self.domain)

    @property
    def given_to_function(self) -> Mapping[str, object]:
        """The attributes of the function that are given, by name."""
        return {
            name: value
            for name, value in self.items()
            if name in _OF_FUNCTION and value is not None
        }

    @property
    def of_function(self) -> Attributes:
        kind: type[Attributes] = TABLES[self.function].attributes
        return attributes_of(kind, self.given_to_function)

    def exact(self, x: Array) -> Array:
        """The value of the function, in the dtype of `x`."""
        evaluate = TABLES[self.function].evaluate
        assert evaluate is not None
        result: Array = evaluate(self.of_function, [x])
        return result


_OF_FUNCTION = tuple(d.name for d in declarations(TableAttrs) if d.meaning == "of the function")


@dataclass(frozen=True, kw_only=True)
class OpaqueAttrs(Attributes):
    """An op of the source file that the IR cannot express."""

    kind: str = attribute("its name there")
    types: tuple[TensorType, ...] = attribute("of its outputs")
    source: Source | None = attribute("the object that runs it")


def check_spec(spec: QuantSpec) -> None:
    """Raise GraphError for an invalid spec."""
    if not 1 <= spec.bits <= 32:
        raise GraphError(f"{spec.bits} bits are outside 1..32")
    if spec.rounding not in ROUNDINGS or spec.overflow not in OVERFLOWS:
        raise GraphError(f"unknown rounding or overflow in {spec}")
    if spec.role not in ROLES:
        raise GraphError(f"unknown role `{spec.role}`", hint=f"choose one of {', '.join(ROLES)}")


def _input_type(attrs: InputAttrs, inputs: Sequence[TensorType]) -> TensorType:
    return attrs.type


def _const_type(attrs: ConstantAttrs, inputs: Sequence[TensorType]) -> TensorType:
    return type_of(attrs.value)


def _const(attrs: ConstantAttrs, inputs: Sequence[Array]) -> Array:
    return attrs.value


def _const_nonnegative(attrs: ConstantAttrs, inputs: Sequence[bool]) -> bool:
    return bool(attrs.value.dtype.kind in "fiu" and (attrs.value >= 0).all())


def _quantized_type(attrs: QuantizerAttrs, inputs: Sequence[TensorType]) -> TensorType:
    if not inputs[0].is_float:
        raise GraphError(f"only float tensors are quantized, found {inputs[0]}")
    return inputs[0]


def reach_of_spec(attrs: QuantizerAttrs, inputs: Sequence[Ranged], shapes: Shapes) -> Reach:
    low, high = attrs.spec.lo, attrs.spec.hi
    return Reach(low, high, max(-low, high))


def _quantize(attrs: QuantizerAttrs, inputs: Sequence[Array]) -> Array:
    return numerics.fake_quantize(inputs[0], attrs.spec)


def _quantize_in_place(attrs: QuantizerAttrs, inputs: Sequence[Array]) -> Array:
    return numerics.fake_quantize(inputs[0], attrs.spec, out=inputs[0])


def _requantize(attrs: QuantizerAttrs, inputs: Sequence[Fixed]) -> Fixed:
    return numerics.requantize(inputs[0], attrs.spec)


def table(attrs: TableAttrs, exponent: int) -> Codes:
    """Output codes of a table for every input code, lowest first (docs/numerics.md, 3).

    `exponent` is that of the input. Infinities saturate. Raises GraphError if the function is
    NaN at an input code.
    """
    codes = np.arange(attrs.domain.lo, attrs.domain.hi + 1, dtype=np.int64)
    with np.errstate(all="ignore"):
        value = attrs.exact(np.ldexp(codes.astype(np.float64), -exponent))
    undefined = np.isnan(value)
    if undefined.any():
        first = np.ldexp(float(codes[undefined.argmax()]), -exponent)
        raise GraphError(f"its function `{attrs.function}` has no value at {first:g}")
    return numerics.quantize(value, attrs.spec).codes


def _lookup(attrs: TableAttrs, inputs: Sequence[Array]) -> Array:
    x = inputs[0]
    value = attrs.exact(x.astype(np.float64))
    return numerics.fake_quantize(value, attrs.spec).astype(x.dtype)


def _integer_lookup(attrs: TableAttrs, inputs: Sequence[Fixed]) -> Fixed:
    x = inputs[0]
    codes = table(attrs, int(x.exponent))[x.codes - attrs.domain.lo]
    return Fixed(codes, attrs.exponent)


class Source(Protocol):
    """An opaque op from a file, and how to run it."""

    @property
    def pure(self) -> bool:
        """True if its results depend only on its inputs."""

    def run(self, inputs: Sequence[Array]) -> Array | tuple[Array, ...]:
        """The outputs: an array, or a tuple where there are several."""

    def types(
        self, inputs: Sequence[TensorType], constants: Sequence[Array | None]
    ) -> tuple[TensorType, ...]:
        """Output types for inputs of these types; `constants` has the known values."""


def opaque_types(
    attrs: OpaqueAttrs, inputs: Sequence[TensorType], constants: Sequence[Array | None]
) -> tuple[TensorType, ...]:
    """The types of an opaque op's outputs.

    These are the types from the file; sizes that are unknown there come from the source, from the
    known sizes of inputs.
    """
    if attrs.source is None or not inputs or all(map(_closed, attrs.types)):
        return attrs.types
    if not all(map(_closed, inputs)):
        return attrs.types
    inferred = attrs.source.types(inputs, constants)
    if len(inferred) != len(attrs.types):
        return attrs.types
    return tuple(map(_closer, attrs.types, inferred))


def _closed(kind: TensorType) -> bool:
    return kind.shape is not None and None not in kind.shape


def _closer(recorded: TensorType, inferred: TensorType) -> TensorType:
    """Merge two types of one value. The recorded one is used where they differ."""
    if recorded.shape is None or inferred.shape is None:
        return inferred if recorded.shape is None else recorded
    if not recorded.accepts(inferred):
        return recorded
    pairs = zip(recorded.shape, inferred.shape, strict=True)
    return recorded.with_shape(tuple(b if a is None else a for a, b in pairs))


def _recorded_types(attrs: OpaqueAttrs, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
    return attrs.types


def _opaque(attrs: OpaqueAttrs, inputs: Sequence[Array]) -> Array | tuple[Array, ...]:
    if attrs.source is None:
        raise GraphError(f"nothing can run `{attrs.kind}`")
    return attrs.source.run(inputs)


OPS: tuple[AnyOp, ...] = (
    OpDef("input", (0, 0), InputAttrs, _input_type),
    OpDef("const", (0, 0), ConstantAttrs, _const_type, _const, nonnegative=_const_nonnegative),
    OpDef(
        "quantize", (1, 1), QuantizerAttrs, _quantized_type, _quantize, _requantize,
        scale=Scale.OWN, reach=reach_of_spec, in_place=_quantize_in_place, owns=True,
        nonnegative=lambda attrs, inputs: inputs[0] or not attrs.spec.signed,
    ),
    OpDef(
        "lookup", (1, 1), TableAttrs, _quantized_type, _lookup, _integer_lookup,
        scale=Scale.OWN, reach=reach_of_spec,
    ),
    OpDef("opaque", (0, None), OpaqueAttrs, _recorded_types, _opaque),
)  # fmt: skip
