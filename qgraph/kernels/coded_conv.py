"""Convolutions of codes: values on one scale, multiplied as integers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from qgraph import kernels
from qgraph.kernels.plain import Float32
from qgraph.ops.attribute_types import Pads, Pair

if TYPE_CHECKING:
    from qgraph import _native

FLOAT32_EXACT = 1 << 24  # float32 holds every whole number up to this
MAX_EXPONENT = 60  # larger exponents are computed in float: products could leave its range
MIN_PIXELS = 8  # with fewer pixels, packing the filters takes too long
U8, S8, S32 = 0, 1, 4  # values of the enumeration in fused_ops/engine/kernels/kernels.h


def multiplies_bytes() -> bool:
    """Whether native code multiplies 8-bit codes faster than floats on this CPU."""
    engine = kernels.native_engine()
    return engine is not None and engine.best_level() > 0


@dataclass(frozen=True)
class CodeScale:
    """Codes of 8 bits: ``value = code * 2^-exponent``."""

    exponent: int
    signed: bool


@dataclass(frozen=True, eq=False)
class CodedConv:
    """``kernels.conv2d`` for filters ``w`` and images that are codes, to the bit.

    Every sum is a whole number of units that float32 holds, so the order of sums does not matter.
    codes: of the filters, int8 [kh, kw, c / groups, outputs].
    """

    w: Float32
    codes: np.ndarray[tuple[int, ...], np.dtype[np.int8]]
    images: CodeScale
    filters: CodeScale
    strides: Pair
    dilations: Pair
    _packed: dict[tuple[int, ...], _native.engine.kernels.CodedConv] = field(
        default_factory=dict, init=False
    )

    @staticmethod
    def of(
        w: Float32, images: CodeScale, filters: CodeScale, strides: Pair, dilations: Pair
    ) -> CodedConv | None:
        """Create it; None without native code for this CPU, or if sums may be inexact."""
        if not multiplies_bytes() or not w.size:
            return None
        if max(abs(images.exponent), abs(filters.exponent)) > MAX_EXPONENT:
            return None
        scaled = np.ascontiguousarray(w) * np.float32(2.0**filters.exponent)
        with np.errstate(invalid="ignore"):  # numbers that are not codes differ below
            codes = scaled.astype(np.int8)
        if not np.array_equal(codes, scaled):
            return None
        largest = np.abs(scaled).reshape(-1, w.shape[-1]).sum(axis=0, dtype=np.float64).max()
        if largest * (128 if images.signed else 255) >= FLOAT32_EXACT:
            return None
        return CodedConv(w, codes, images, filters, strides, dilations)

    def __call__(self, x: Float32, pads: Pads) -> Float32:
        """Convolve `x` [n, h, w, c]. It is thread-safe."""
        (top, bottom), (left, right) = pads
        sides = (top, bottom, left, right)
        shape = kernels.plain.conv_shape(x, self.w, self.strides, self.dilations, sides)
        if math.prod(shape[:-1]) >= MIN_PIXELS:
            y, x = np.empty(shape, np.float32), np.ascontiguousarray(x)
            unit = 2.0 ** -(self.images.exponent + self.filters.exponent)
            packed = self._packed_for(x.shape[1:], sides, shape)
            if packed.run(x, 2.0**self.images.exponent, y, unit):
                return y
        return kernels.conv2d(x, self.w, self.strides, self.dilations, sides)

    def _packed_for(
        self, image: tuple[int, ...], pads: tuple[int, ...], shape: tuple[int, ...]
    ) -> _native.engine.kernels.CodedConv:
        key = (*image, *pads)
        if key not in self._packed:
            codes, x = self.codes, S8 if self.images.signed else U8
            fields = [
                x, S8, S32, *image, *codes.shape[:2], *self.strides, *self.dilations,
                pads[0], pads[2], *shape[1:], image[2] // codes.shape[2], 0, 0,
            ]  # fmt: skip
            engine = kernels.native_engine()
            assert engine is not None  # `of` made this only with native code
            self._packed[key] = engine.kernels.CodedConv(fields, codes)
        return self._packed[key]
