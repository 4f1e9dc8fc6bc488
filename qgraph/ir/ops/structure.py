"""Ops that give a graph its shape: inputs, constants, quantizers, tables and unknown ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from qgraph import numerics
from qgraph.errors import GraphError
from qgraph.ir.ops.base import Attrs, OpDef
from qgraph.ir.ops.composed import TABLES
from qgraph.ir.types import Array, Fixed, QuantSpec, TensorType, type_of


def _input_type(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    result: TensorType = attrs["type"]
    return result


def _const_type(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    return type_of(attrs["value"])


def _const(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    return attrs["value"]


def _quantized_type(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    if not isinstance(attrs["spec"], QuantSpec):
        raise GraphError(f"quantizer without a spec: found {attrs['spec']!r}")
    if not inputs[0].is_float:
        raise GraphError(f"only float tensors are quantized, found {inputs[0]}")
    return inputs[0]


def _quantize(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    return numerics.fake_quantize(inputs[0], attrs["spec"])


def _requantize(attrs: Attrs, inputs: Sequence[Fixed]) -> Fixed:
    return numerics.requantize(inputs[0], attrs["spec"])


def _lookup_type(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    if attrs["function"] not in TABLES:
        raise GraphError(f"`{attrs['function']}` is not a pointwise function")
    return _quantized_type(attrs, inputs)


def table(attrs: Attrs, exponent: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Output codes of a table for every input code, lowest first (docs/numerics.md, 3).

    `attrs["domain"]` is the input's QuantSpec, `exponent` its exponent. Infinities saturate. Raises
    GraphError where the function has no value at an input code.
    """
    domain: QuantSpec = attrs["domain"]
    codes = np.arange(domain.lo, domain.hi + 1, dtype=np.int64)
    with np.errstate(all="ignore"):
        value = TABLES[attrs["function"]](attrs, np.ldexp(codes.astype(np.float64), -exponent))
    undefined = np.isnan(value)
    if undefined.any():
        first = np.ldexp(float(codes[undefined.argmax()]), -exponent)
        raise GraphError(f"its function `{attrs['function']}` has no value at {first:g}")
    return numerics.quantize(value, attrs["spec"]).codes


def _lookup(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    x = inputs[0]
    value = TABLES[attrs["function"]](attrs, x.astype(np.float64))
    return numerics.fake_quantize(value, attrs["spec"]).astype(x.dtype)


def _integer_lookup(attrs: Attrs, inputs: Sequence[Fixed]) -> Fixed:
    x = inputs[0]
    codes = table(attrs, int(x.exponent))[x.codes - attrs["domain"].lo]
    return Fixed(codes, attrs["spec"].exponent)


class Source(Protocol):
    """What an opaque op was in its file, and who can run it."""

    @property
    def pure(self) -> bool:
        """True if it is a function of its inputs, and nothing else."""

    def run(self, inputs: Sequence[Array]) -> Array | tuple[Array, ...]:
        """Its outputs: an array, or a tuple where there are several."""

    def types(
        self, inputs: Sequence[TensorType], constants: Sequence[Array | None]
    ) -> tuple[TensorType, ...]:
        """Output types for inputs of these types; `constants` are the values of those known."""


def opaque_types(
    attrs: Attrs, inputs: Sequence[TensorType], constants: Sequence[Array | None]
) -> tuple[TensorType, ...]:
    """The types of an opaque op's outputs.

    They are those that were read with it, and where sizes were open then, what its source gives for
    inputs whose sizes are known now.
    """
    recorded: tuple[TensorType, ...] = attrs["types"]
    source: Source | None = attrs["source"]
    if source is None or not inputs or all(map(_closed, recorded)):
        return recorded
    if not all(map(_closed, inputs)):
        return recorded
    inferred = source.types(inputs, constants)
    return tuple(map(_closer, recorded, inferred)) if len(inferred) == len(recorded) else recorded


def _closed(kind: TensorType) -> bool:
    return kind.shape is not None and None not in kind.shape


def _closer(recorded: TensorType, inferred: TensorType) -> TensorType:
    """Of two types for one value, all that both know. Where they differ, the recorded one."""
    if recorded.shape is None or inferred.shape is None:
        return inferred if recorded.shape is None else recorded
    if not recorded.accepts(inferred):
        return recorded
    pairs = zip(recorded.shape, inferred.shape, strict=True)
    return recorded.with_shape(tuple(b if a is None else a for a, b in pairs))


def _opaque_type(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    result: TensorType = attrs["types"][0]
    return result


def _opaque(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    return attrs["source"].run(inputs)


OPS = (
    OpDef("input", (0, 0), _input_type, attrs=("type",)),
    OpDef("const", (0, 0), _const_type, _const, attrs=("value",)),
    OpDef("quantize", (1, 1), _quantized_type, _quantize, _requantize, ("spec",)),
    # A pointwise function as a table: codes of `domain` in, codes of `spec` out.
    OpDef("lookup", (1, 1), _lookup_type, _lookup, _integer_lookup, ("function", "domain", "spec")),
    # An op of its source that is not understood: `kind` is its name there, `source` can run it.
    OpDef("opaque", (0, None), _opaque_type, _opaque, attrs=("kind", "types", "source")),
)
