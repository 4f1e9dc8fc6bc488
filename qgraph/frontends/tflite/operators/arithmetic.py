"""Elementwise arithmetic, comparisons and choices."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.operators.translator import Translator, fused, renamed
from qgraph.frontends.tflite.tensors import DTYPES, LiteTensor
from qgraph.frontends.tflite.translation import Translation

EXACT_CODES = ("INT8", "UINT8", "INT16")  # types whose codes float32 holds


def _cast(t: Translation) -> Ref:
    """Other types of numbers. Codes with a scale are read as the numbers that they stand for, but a
    cast takes the codes themselves, as in an index of a table.
    """
    if t.output().scale is not None:
        raise UnsupportedError(
            "`CAST` to codes with a scale",
            node=t.name,
            hint="write the model with QUANTIZE instead",
        )
    x = t.input(0)
    if t.tensor(0).scale is not None:
        x = _codes(t, x, t.tensor(0))
    t.optional("OutDataType")  # the type of the output, which every file has
    return t.emit("Cast", x, DstT=t.dtype(t.output()))


def _codes(t: Translation, x: Ref, tensor: LiteTensor) -> Ref:
    """The codes that stand for numbers, as float32."""
    scale = tensor.scale
    assert scale is not None
    if scale.scales.size > 1 or tensor.kind not in EXACT_CODES:
        raise UnsupportedError(
            f"`CAST` of codes of type {tensor.kind} with {scale.scales.size} scales", node=t.name
        )
    ends = np.iinfo(DTYPES[tensor.kind])
    steps = t.emit("Round", t.emit("RealDiv", x, t.scalar(float(scale.scales[0]), "scale")))
    code = t.emit("AddV2", steps, t.scalar(float(scale.zeros[0]), "zero"))
    code = t.emit("Maximum", code, t.scalar(float(ends.min), "lowest"))
    return t.emit("Minimum", code, t.scalar(float(ends.max), "highest"))


OPERATORS: Mapping[str, Translator] = MappingProxyType(
    {
        "ADD": fused("AddV2"),
        "SUB": fused("Sub"),
        "MUL": fused("Mul"),
        "DIV": fused("RealDiv"),
        "ADD_N": renamed("AddN"),
        "MAXIMUM": renamed("Maximum"),
        "MINIMUM": renamed("Minimum"),
        "POW": renamed("Pow"),
        "FLOOR_DIV": renamed("FloorDiv"),
        "FLOOR_MOD": renamed("FloorMod"),
        "SQUARED_DIFFERENCE": renamed("SquaredDifference"),
        "ABS": renamed("Abs"),
        "NEG": renamed("Neg"),
        "SIGN": renamed("Sign"),
        "EXP": renamed("Exp"),
        "LOG": renamed("Log"),
        "SQRT": renamed("Sqrt"),
        "RSQRT": renamed("Rsqrt"),
        "SQUARE": renamed("Square"),
        "SIN": renamed("Sin"),
        "COS": renamed("Cos"),
        "FLOOR": renamed("Floor"),
        "CEIL": renamed("Ceil"),
        "ROUND": renamed("Round"),
        "EQUAL": renamed("Equal"),
        "NOT_EQUAL": renamed("NotEqual"),
        "GREATER": renamed("Greater"),
        "GREATER_EQUAL": renamed("GreaterEqual"),
        "LESS": renamed("Less"),
        "LESS_EQUAL": renamed("LessEqual"),
        "LOGICAL_AND": renamed("LogicalAnd"),
        "LOGICAL_OR": renamed("LogicalOr"),
        "LOGICAL_NOT": renamed("LogicalNot"),
        "SELECT": renamed("Select"),
        "SELECT_V2": renamed("SelectV2"),
        "CAST": _cast,
    }
)
