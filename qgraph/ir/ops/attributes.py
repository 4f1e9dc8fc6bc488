"""Attributes that several kinds of ops have."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.ir.ops.windows import Padding
from qgraph.ir.types import QuantSpec
from qgraph.ops.attribute_types import Pair
from qgraph.ops.attributes import Attributes, attribute


@dataclass(frozen=True, kw_only=True)
class MarkedAttrs(Attributes):
    """Arithmetic, with marks by which passes record its origin."""

    pool: bool = attribute("part of an average", default=False)
    batch_norm: bool = attribute("part of a batch norm that was not folded", default=False)
    outside: bool = attribute("float, before or after the integer part", default=False)
    choice: bool = attribute("codes of an operand, or 0, as a mask chooses", default=False)
    sign_only: bool = attribute("a difference of which only the sign is used", default=False)
    normalized_input: bool = attribute("a batch norm before it was folded into it", default=False)
    grid: QuantSpec | None = attribute(
        "the format of its constant in an already quantized file", default=None
    )


@dataclass(frozen=True, kw_only=True)
class SlidingAttrs(Attributes):
    """A window that slides over height and width."""

    strides: Pair = attribute("positions from one window to the next", low=1)
    padding: Padding = attribute("positions around the image", low=0)


@dataclass(frozen=True, kw_only=True)
class AxisAttrs(Attributes):
    """One axis."""

    axis: int = attribute("the axis; a negative one counts from the last")


@dataclass(frozen=True, kw_only=True)
class AxesAttrs(Attributes):
    """Some axes."""

    axes: tuple[int, ...] = attribute("the axes; a negative one counts from the last")
