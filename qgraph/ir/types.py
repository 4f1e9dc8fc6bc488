"""Types of values in the IR: tensor types, fixed-point specs, roundings, roles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from qgraph.enums import StrEnum

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
Shape = tuple[int | None, ...]
# One exponent, or one for each channel: in a spec, and for arithmetic.
Exponent = int | tuple[int, ...]
AnyExponent = Exponent | Codes


class Rounding(StrEnum):
    """How a number is rounded to an integer (docs/numerics.md, 1)."""

    HALF_EVEN = "half_even"
    HALF_UP = "half_up"
    HALF_AWAY = "half_away"
    FLOOR = "floor"
    DOUBLE = "double"


def rounding_of_numbers(rounding: str) -> Rounding:
    """The rounding of numbers that are not shifted codes: `double` has no last bit to drop."""
    return Rounding.HALF_AWAY if rounding == Rounding.DOUBLE else Rounding(rounding)


class Overflow(StrEnum):
    """Handling of codes past the ends of their range."""

    SATURATE = "saturate"
    WRAP = "wrap"


class Role(StrEnum):
    """Role of a tensor in its layer."""

    INPUT = "input"
    INDEX = "index"  # of rows of a table; its scale is always 1
    ACTIVATION = "activation"
    INTERNAL = "internal"  # the wide stage inside a layer
    ACCUMULATOR = "accumulator"  # sums that wrap around
    WEIGHT = "weight"
    BIAS = "bias"
    CLIP = "clip"  # a bound of a wide value
    SCALE = "scale"  # a constant factor, and weights of a batch norm that could not be folded
    CONSTANT = "constant"  # reciprocals, slopes

    @property
    def of_constant(self) -> bool:
        """Whether the compiler computes the tensor, once."""
        return self in (Role.WEIGHT, Role.BIAS, Role.CLIP, Role.SCALE, Role.CONSTANT)


# The order is that of the enumerations in native code.
ROUNDINGS = tuple(Rounding)
OVERFLOWS = tuple(Overflow)
ROLES = tuple(Role)


@dataclass(frozen=True)
class Moments:
    """Statistics of a value in training: mean and standard deviation of each channel, [channels].

    `epsilon` is the epsilon of a folded batch norm, in the squared unit of the value. It is set
    if the value is the result of the batch norm, or if the batch norm was folded into the
    layer after the value, which then has `normalized_input`.
    """

    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]
    epsilon: npt.NDArray[np.float64] | None = None

    def scaled(self, factor: npt.NDArray[np.float64]) -> Moments:
        """Moments of the value times `factor`, [channels], all above 0."""
        epsilon = None if self.epsilon is None else self.epsilon * factor**2
        return Moments(self.mean * factor, self.deviation * factor, epsilon)

    def shifted(self, by: npt.NDArray[np.float64]) -> Moments:
        """Moments of the value plus `by`, [channels]."""
        return replace(self, mean=self.mean + by)

    def of_channels(self, kept: Array) -> Moments:
        """Moments of the channels that the index `kept` selects."""
        epsilon = None if self.epsilon is None else self.epsilon[kept]
        return Moments(self.mean[kept], self.deviation[kept], epsilon)


@dataclass(frozen=True)
class QuantSpec:
    """Fixed-point format of a tensor: `value = code * 2^-exponent`.

    `exponent` is the number of fractional bits `f` (docs/numerics.md, 1), a tuple over output
    channels if there is one per channel, None before calibration. `group` names the scale group
    whose members share one exponent.
    """

    bits: int
    signed: bool
    role: Role
    exponent: Exponent | None = None
    rounding: Rounding = Rounding.HALF_EVEN
    overflow: Overflow = Overflow.SATURATE
    group: str | None = None
    per_channel: bool = False

    @property
    def lo(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def hi(self) -> int:
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    def with_exponent(self, exponent: Exponent) -> QuantSpec:
        return replace(self, exponent=exponent)

    def __str__(self) -> str:
        kind = f"{'s' if self.signed else 'u'}{self.bits}"
        if isinstance(self.exponent, tuple):
            scale = f"2^-[{min(self.exponent)}..{max(self.exponent)}]"
        else:
            scale = "2^-?" if self.exponent is None else f"2^-{self.exponent}"
        return f"{kind}*{scale} {self.role}"


@dataclass(frozen=True)
class Fixed:
    """A tensor in fixed point: `value = codes * 2^-exponent`.

    `exponent` is one integer, or an array along the last axis if scales are per channel.
    """

    codes: Codes
    exponent: int | Codes


@dataclass(frozen=True)
class TensorType:
    """Element type (a numpy name, or `string`) and shape.

    A dimension may be unknown (None); so may the rank, when `shape` itself is None.
    """

    dtype: str
    shape: Shape | None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in ("float16", "float32", "float64", "bfloat16")

    def with_shape(self, shape: Shape | None) -> TensorType:
        return TensorType(self.dtype, shape)

    def accepts(self, other: TensorType) -> bool:
        """True if a tensor of type `other` may be used where this type is declared."""
        if self.dtype != other.dtype:
            return False
        if self.shape is None or other.shape is None:
            return True
        return len(self.shape) == len(other.shape) and all(
            a is None or b is None or a == b for a, b in zip(self.shape, other.shape, strict=True)
        )

    def __str__(self) -> str:
        dims = (
            "*"
            if self.shape is None
            else ",".join("?" if d is None else str(d) for d in self.shape)
        )
        return f"{self.dtype}[{dims}]"


@lru_cache(maxsize=64)
def _dtype_name(dtype: np.dtype[np.generic]) -> str:
    """Cached name of a dtype: numpy computes it each time, which is slow in large graphs."""
    return "string" if dtype.kind in "OSU" else dtype.name


def type_of(value: Array) -> TensorType:
    return TensorType(_dtype_name(value.dtype), value.shape)
