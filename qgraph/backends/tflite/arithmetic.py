"""Arithmetic of the executors of `.tflite` files, as measured in tests/backends/tflite."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.enums import StrEnum
from qgraph.ir.types import Rounding

INT32_MAX = (1 << 31) - 1


class TfliteExecutor(StrEnum):
    """Interpreters of `.tflite` files that `qgraph verify` runs."""

    XNNPACK = "LiteRT with XNNPACK"
    REFERENCE = "LiteRT reference kernels"
    MICRO = "TFLM interpreter"


@dataclass(frozen=True)
class TfliteArithmetic:
    """The roundings of executors with the same arithmetic.

    layers: convolutions and products. additions: sums and differences of two tensors. inputs:
    floats that become codes. moves: QUANTIZE from codes to codes. largest_sum: of a layer, that is
    requantized exactly. largest_left_shift: behind a layer. fixed_point_below: sums that are
    shifted by less are multiplied in 32 bits, after the left shift with which that begins.
    signed_matrices: whether the second factor of BATCH_MATMUL needs zero point 0.
    """

    name: str  # that of the profile made for it
    layers: Rounding
    additions: Rounding
    inputs: Rounding
    moves: Rounding
    largest_sum: int
    largest_left_shift: int
    fixed_point_below: int
    signed_matrices: bool
    executors: tuple[TfliteExecutor, ...]

    @property
    def described(self) -> str:
        verb = "rounds" if len(self.executors) == 1 else "round"
        return f"{' and '.join(self.executors)} {verb}"

    @property
    def fully_connected(self) -> bool:
        """Whether all executors round FULLY_CONNECTED like convolutions."""
        return TfliteExecutor.REFERENCE not in self.executors


LITERT = TfliteArithmetic(
    "litert",
    layers=Rounding.HALF_EVEN,
    additions=Rounding.HALF_UP,
    inputs=Rounding.HALF_EVEN,
    moves=Rounding.HALF_UP,
    largest_sum=1 << 24,  # sums are converted to float32
    largest_left_shift=7,  # XNNPACK does not load a file with a larger one
    fixed_point_below=-7,  # XNNPACK leaves products and QUANTIZE to other kernels
    signed_matrices=True,
    executors=(TfliteExecutor.XNNPACK,),
)
TFLM = TfliteArithmetic(
    "tflm",
    layers=Rounding.DOUBLE,
    additions=Rounding.HALF_AWAY,
    inputs=Rounding.HALF_AWAY,
    moves=Rounding.DOUBLE,
    largest_sum=INT32_MAX,
    largest_left_shift=31,
    fixed_point_below=1,
    signed_matrices=False,
    executors=(TfliteExecutor.REFERENCE, TfliteExecutor.MICRO),
)


ARITHMETICS = (LITERT, TFLM)


def rounds_alike(wanted: Rounding, executed: Rounding, shifts: set[int]) -> bool:
    """Whether two roundings give the same codes for these shifts."""
    if wanted == executed or max(shifts) <= 0:
        return True
    # By one bit, `double` rounds half up.
    by_one = {Rounding.DOUBLE, Rounding.HALF_UP}
    return {wanted, executed} == by_one and max(shifts) == 1
