"""Ops on codes, of ONNX and ONNX Runtime: the float ops that they stand for."""

from __future__ import annotations

from dataclasses import dataclass

EVERY = -1  # the operands of Concat: all from here on


@dataclass(frozen=True)
class QOperator:
    """An op on codes: the float op, and the slots of its operands.

    Each operand has three slots: codes, scale, zero point. The scale and the zero point of the
    result are at `result`. `bias` is a slot of int32 numbers on the scale of the products.
    """

    op: str
    operands: tuple[int, ...]
    result: int
    bias: int | None = None
    channels: int = 0  # the axis of weights that scales are along


QOPERATORS = {
    "QLinearConv": QOperator("Conv", (0, 3), 6, bias=8),
    "QLinearMatMul": QOperator("MatMul", (0, 3), 6, channels=1),
    "QGemm": QOperator("Gemm", (0, 3), 7, bias=6, channels=1),
    "QLinearAdd": QOperator("Add", (0, 3), 6),
    "QLinearMul": QOperator("Mul", (0, 3), 6),
    "QLinearAveragePool": QOperator("AveragePool", (0,), 3),
    "QLinearGlobalAveragePool": QOperator("GlobalAveragePool", (0,), 3),
    "QLinearLeakyRelu": QOperator("LeakyRelu", (0,), 3),
    "QLinearSigmoid": QOperator("Sigmoid", (0,), 3),
    "QLinearSoftmax": QOperator("Softmax", (0,), 3),
    "QLinearReduceMean": QOperator("ReduceMean", (0,), 3),
    "QLinearConcat": QOperator("Concat", (2, EVERY), 0),
}
# Attributes of ONNX Runtime's ops that the float ops do not have.
OWN_ATTRIBUTES = {"opset", "channels_last"}
