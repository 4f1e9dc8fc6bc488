"""Run an engine with one input from floats to floats in one native call."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph import kernels
from qgraph.backends.engine.engine import Engine
from qgraph.errors import ExactnessError, GraphError
from qgraph.ir.types import ROUNDINGS, Array, Exponent, Overflow, QuantSpec, rounding_of_numbers

EXACT_FLOAT32_BITS = 24


def fits_float32(spec: QuantSpec) -> bool:
    """Whether float32 arithmetic, which the native quantizer uses, gives the codes of `spec`."""
    return (
        isinstance(spec.exponent, int)
        and abs(spec.exponent) <= kernels.MAX_FRACTION_BITS
        and spec.overflow == Overflow.SATURATE
        and spec.bits <= EXACT_FLOAT32_BITS
    )


class FloatEngine:
    """Computes the same bits as `numerics.quantize`, the engine and `numerics.dequantize`.

    Created by `of`, if the quantizer and the scales allow it.
    """

    def __init__(
        self, engine: Engine, spec: QuantSpec, exponent: int, exits: Mapping[str, int]
    ) -> None:
        self._native = engine.native
        (self._entry,) = engine.entries
        self._shape = engine.tensors[self._entry].shape[1:]
        rounding = ROUNDINGS.index(rounding_of_numbers(spec.rounding))
        self._spec = (exponent, float(spec.lo), float(spec.hi), rounding)
        self._exits = {name: engine.tensors[name].shape[1:] for name in exits}
        self._wanted = [engine.index[name] for name in exits]
        self._exponents = list(exits.values())

    @staticmethod
    def of(engine: Engine, spec: QuantSpec, exits: Mapping[str, Exponent]) -> FloatEngine | None:
        """Create a runner; None for several scales per tensor, or codes that float32 cannot hold.

        exits: exponents by tensor.
        """
        exponents = {name: e for name, e in exits.items() if isinstance(e, int)}
        allowed = (
            engine.batch_free
            and len(engine.entries) == 1
            and fits_float32(spec)
            and len(exponents) == len(exits)
            and not any(engine.tensors[name].constant for name in exits)
        )
        if not allowed or not isinstance(spec.exponent, int):
            return None
        return FloatEngine(engine, spec, spec.exponent, exponents)

    def run(self, x: Array) -> dict[str, Array]:
        """float32 by name, given float32 [n, ...]. Raises GraphError and ExactnessError (NaN)."""
        if x.shape[1:] != self._shape or not x.size:
            raise GraphError(f"expects [n, *{self._shape}], found {x.shape}", node=self._entry)
        x = np.ascontiguousarray(x, np.float32)
        results = {
            name: np.empty((len(x), *shape), np.float32) for name, shape in self._exits.items()
        }
        arrays = list(results.values())
        try:
            self._native.run_floats(len(x), x, *self._spec, self._wanted, self._exponents, arrays)
        except ValueError as error:
            raise ExactnessError(str(error), node=self._entry) from None
        return results
