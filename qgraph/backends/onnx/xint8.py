"""Form `onnx-xint8`: QDQ in the shape of AMD's XINT8, which AMD Quark writes for Ryzen AI.

All codes are int8 with zero point 0, and each tensor has one scale, a power of two. Only biases may
be int32, on the scale of the sums. Source of the shape: AMD Quark for ONNX, `XInt8Spec` and the
quantizer of `EnableNPUCnn`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from qgraph.backends.onnx.float_values import value_lowerings
from qgraph.backends.onnx.qdq import QdqEmission
from qgraph.backends.onnx.xint8_limits import MOST_BIAS_SHIFT
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Array
from qgraph.program import Step, Tensor

INT8 = np.iinfo(np.int8)
PROFILE = "ryzen-ai"
HINT = f"use profile `{PROFILE}`, or the format onnx-qdq"


class Xint8Emission(QdqEmission):
    """Differs from `onnx-qdq` in types, and in operands of layers, which always have a pair."""

    form: ClassVar[str] = "onnx-xint8"
    types: ClassVar[tuple[str, ...]] = ("int8",)

    def enter(self) -> None:
        for name, tensor in self.tensors.items():
            if isinstance(tensor.exponent, tuple):
                raise UnsupportedError(
                    "has a scale for each channel, but XINT8 has one scale for each tensor",
                    node=name,
                    hint="use a profile without `per_channel` and `scaled_inputs`, or the format "
                    "onnx-qdq",
                )
        super().enter()

    def _is_wide_product(self, step: Step) -> bool:
        return False  # it would need float64, so it is refused

    def narrowest(self, name: str, low: int, high: int) -> str:
        if not is_int8(low, high):
            raise UnsupportedError(
                f"its codes are {low}..{high}, but XINT8 has int8 codes with zero point 0",
                node=name,
                hint=HINT,
            )
        return "int8"

    # -- layers ------------------------------------------------------------------------------

    def _conv2d(self, step: Step) -> None:
        self._give_pair(step.inputs[0], nchw=True)
        super()._conv2d(step)

    def _matmul(self, step: Step) -> None:
        for name in step.inputs:
            if name not in self.program.constants:
                self._give_pair(name, nchw=False)
        super()._matmul(step)

    def _give_pair(self, name: str, nchw: bool) -> None:
        """Quantizers at an operand of a layer that has none, like a sum of few codes."""
        value, tensor = self.get(name, "float32", nchw), self.tensors[name]
        if value not in self.dequantized:
            dtype = self.narrowest(name, tensor.low, tensor.high)
            self.put(name, self.on_grid(value, name, dtype, nchw), "float32", nchw)

    def weighted(self, value: str, weights: str) -> str:
        return value  # weights are int8

    def weights(self, name: str, codes: Array, axis: int, x: str | None) -> str:
        tensor = self.tensors[name]
        held = self.values_of(name, codes, self.narrowest(name, tensor.low, tensor.high), axis)
        # With 8-bit constants as the first operand, ONNX Runtime's sums of two products saturate at
        # 16 bits on x86 without VNNI.
        return self.apart(held, name) if x is None else held

    # -- constants ---------------------------------------------------------------------------

    def bias(self, name: str) -> str:
        """int8 if a coarser scale has the same values, as Quark writes biases; otherwise int32."""
        codes, tensor = self.program.constants[name].reshape(-1), self.tensors[name]
        shift = int8_shift(codes)
        if shift is None:
            return self.values_of(name, codes, "int32", 0)
        assert isinstance(tensor.exponent, int)
        grid = [
            self.scale(tensor.exponent - shift, name),
            self.model.constant(np.zeros((), np.int8), f"{name}/zero", own=True),
        ]
        held = self.model.constant((codes >> shift).astype(np.int8), f"{name}/codes", own=True)
        return self.model.add("DequantizeLinear", [held, *grid], name)

    def type_of_constant(self, tensor: Tensor) -> str:
        users = self.users.get(tensor.name, [])
        if not is_int8(tensor.low, tensor.high) and all(user.op == "add" for user in users):
            return "int32"  # a bias
        return self.narrowest(tensor.name, tensor.low, tensor.high)

    lowerings = value_lowerings(
        "backends/onnx/xint8",
        form,
        requantize=QdqEmission._requantize,
        conv2d=_conv2d,
        depthwise_conv2d=_conv2d,
        matmul=_matmul,
        batch_matmul=_matmul,
    )


def is_int8(low: int, high: int) -> bool:
    """Whether int8 holds these codes."""
    return INT8.min <= low and high <= INT8.max


def int8_shift(codes: Array) -> int | None:
    """The least s for which int8 holds all codes * 2^-s, which are whole; None without such an s
    up to the limit of shifts of biases.
    """
    whole = codes.astype(np.int64)
    most = max(int(whole.max(initial=0)), -int(whole.min(initial=0)) - 1)
    shift = max(0, most.bit_length() - 7)
    exact = shift <= MOST_BIAS_SHIFT and not (whole & ((1 << shift) - 1)).any()
    return shift if exact else None
