"""Arithmetic of the executors of `.tflite` files, as measured in tests/backends/tflite."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.backends.tflite.sum_limits import (
    INT32_MAX,
    FixedPointSums,
    ReducedMultiplierSums,
    SumLimits,
)
from qgraph.enums import StrEnum
from qgraph.ir.types import Rounding


class TfliteExecutor(StrEnum):
    """Interpreters of `.tflite` files that `qgraph verify` runs."""

    XNNPACK = "LiteRT with XNNPACK"
    DEFAULT = "LiteRT default kernels"  # of types that XNNPACK does not have
    REFERENCE = "LiteRT reference kernels"
    MICRO = "TFLM interpreter"


@dataclass(frozen=True)
class StoredCodes:
    """The integers that hold activations in a file.

    zero_points: whether codes that are never negative are stored with the zero point `low`.
    """

    bits: int
    zero_points: bool
    biases: str  # the type of biases

    @property
    def type(self) -> str:
        return f"int{self.bits}"

    @property
    def low(self) -> int:
        return -(1 << self.bits - 1)

    @property
    def high(self) -> int:
        return (1 << self.bits - 1) - 1

    @property
    def ends(self) -> tuple[int, int]:
        return self.low, self.high

    def zero_of(self, lowest: int) -> int:
        """The zero point of codes from `lowest` on."""
        return self.low if self.zero_points and lowest >= 0 else 0

    def fit(self, lowest: int, highest: int) -> bool:
        """Whether codes from `lowest` to `highest` can be stored."""
        zero = self.zero_of(lowest)
        return self.low <= lowest + zero and highest + zero <= self.high


BYTES = StoredCodes(8, zero_points=True, biases="int32")
WORDS = StoredCodes(16, zero_points=False, biases="int64")


@dataclass(frozen=True)
class TfliteArithmetic:
    """The roundings of executors with the same arithmetic.

    layers: convolutions and products of matrices. products: of two tensors, element by element.
    additions: sums and differences of two tensors. inputs: floats that become codes. moves:
    QUANTIZE from codes to codes. sums: of layers and products of matrices. codes: products element
    by element, and codes that QUANTIZE converts. addition_shifts: behind ADD and SUB.
    signed_matrices: whether the second factor of BATCH_MATMUL needs zero point 0. on_codes:
    executors that convert floats differently, but compute the same from codes.
    """

    name: str  # that of the profile made for it
    stored: StoredCodes
    layers: Rounding
    products: Rounding
    additions: Rounding
    inputs: Rounding
    moves: Rounding
    sums: SumLimits
    codes: SumLimits
    addition_shifts: tuple[int, int]
    signed_matrices: bool
    executors: tuple[TfliteExecutor, ...]
    on_codes: tuple[TfliteExecutor, ...] = ()

    @property
    def described(self) -> str:
        verb = "rounds" if len(self.executors) == 1 else "round"
        return f"{' and '.join(self.executors)} {verb}"

    @property
    def fully_connected(self) -> bool:
        """Whether all executors round FULLY_CONNECTED like convolutions."""
        return TfliteExecutor.REFERENCE not in self.executors

    @property
    def gathers_bytes_only(self) -> bool:
        """Whether GATHER and REDUCE_MAX need int8: TFLM does not have them for int16."""
        return self.stored.bits > BYTES.bits and TfliteExecutor.MICRO in self.executors


# XNNPACK converts sums to float32, loads no file with a larger left shift, and leaves products and
# QUANTIZE with other shifts to kernels of 32 bits.
_XNNPACK_SUMS = FixedPointSums(largest=1 << 24, left=7, exact_from=-7)
_SUMS_OF_32_BITS = FixedPointSums(largest=INT32_MAX, left=31, exact_from=1)
LITERT = TfliteArithmetic(
    "litert",
    BYTES,
    layers=Rounding.HALF_EVEN,
    products=Rounding.HALF_EVEN,
    additions=Rounding.HALF_UP,
    inputs=Rounding.HALF_EVEN,
    moves=Rounding.HALF_UP,
    sums=_XNNPACK_SUMS,
    codes=_XNNPACK_SUMS,
    addition_shifts=(-7, 10),  # outside, XNNPACK leaves ADD and SUB to other kernels
    signed_matrices=True,
    executors=(TfliteExecutor.XNNPACK,),
)
TFLM = TfliteArithmetic(
    "tflm",
    BYTES,
    layers=Rounding.DOUBLE,
    products=Rounding.DOUBLE,
    additions=Rounding.HALF_AWAY,
    inputs=Rounding.HALF_AWAY,
    moves=Rounding.DOUBLE,
    sums=_SUMS_OF_32_BITS,
    codes=_SUMS_OF_32_BITS,
    addition_shifts=(-7, 10),
    signed_matrices=False,
    executors=(TfliteExecutor.REFERENCE, TfliteExecutor.MICRO),
)
TFLM_INT16X8 = TfliteArithmetic(
    "tflm-int16x8",
    WORDS,
    layers=Rounding.HALF_UP,
    products=Rounding.DOUBLE,
    additions=Rounding.HALF_AWAY,
    inputs=Rounding.HALF_AWAY,
    moves=Rounding.DOUBLE,
    sums=ReducedMultiplierSums(),
    codes=_SUMS_OF_32_BITS,
    addition_shifts=(-12, 18),
    signed_matrices=False,
    executors=(TfliteExecutor.REFERENCE, TfliteExecutor.MICRO),
    on_codes=(TfliteExecutor.DEFAULT,),
)


ARITHMETICS = (LITERT, TFLM, TFLM_INT16X8)


def rounds_alike(wanted: Rounding, executed: Rounding, shifts: set[int]) -> bool:
    """Whether two roundings give the same codes for these shifts."""
    if wanted == executed or max(shifts) <= 0:
        return True
    # By one bit, `double` rounds half up.
    by_one = {Rounding.DOUBLE, Rounding.HALF_UP}
    return {wanted, executed} == by_one and max(shifts) == 1
