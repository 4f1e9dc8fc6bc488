"""A function of codes that is given by its values, as files of quantized networks have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops.base import AnyOp, Elements, OpDef, same_as_first
from qgraph.ir.types import Array
from qgraph.ops.attributes import Attributes, attribute


@dataclass(frozen=True, kw_only=True)
class TabulatedAttrs(Attributes):
    """Values of a function at multiples of a step; numbers between them are rounded, half to even,
    and numbers outside have the value at the nearest end.
    """

    log2_steps: int = attribute("the step is 2^-log2_steps")
    first: int = attribute("the multiple that has the first value")
    values: tuple[float, ...] = attribute("the results, one for each multiple")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.values or not np.isfinite(self.values).all():
            raise GraphError("attribute `values` needs at least one number, all of them finite")


def tabulated(attrs: TabulatedAttrs, x: Array) -> Array:
    """The values at the multiples nearest to `x`, in its dtype; NaN stays NaN."""
    last = len(attrs.values) - 1
    places = np.clip(np.rint(np.ldexp(x, attrs.log2_steps)) - attrs.first, 0, last)
    known = np.asarray(attrs.values, x.dtype)[np.nan_to_num(places).astype(np.int64)]
    return np.where(np.isnan(x), x, known)


def _evaluate(attrs: TabulatedAttrs, inputs: Sequence[Array]) -> Array:
    return tabulated(attrs, inputs[0])


def _nonnegative(attrs: TabulatedAttrs, inputs: Sequence[bool]) -> bool:
    return min(attrs.values) >= 0


OPS: tuple[AnyOp, ...] = (
    OpDef(
        "tabulated", (1, 1), TabulatedAttrs, same_as_first, _evaluate,
        nonnegative=_nonnegative, elementwise=True, pointwise=True, takes=Elements.FLOATS,
    ),
)  # fmt: skip
