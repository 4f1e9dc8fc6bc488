"""Elementwise arithmetic, comparisons and choices."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.errors import UnsupportedError
from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.operators.translator import Translator, fused, renamed
from qgraph.frontends.tflite.translation import Translation


def _cast(t: Translation) -> Ref:
    """Other types of numbers. Codes with a scale are read as the numbers that they stand for, but a
    cast takes the codes themselves.
    """
    if t.tensor(0).scale is not None or t.output().scale is not None:
        raise UnsupportedError(
            "`CAST` of codes, as in a table of a function",
            node=t.name,
            hint="quantize the float network instead",
        )
    t.optional("OutDataType")  # the type of the output, which every file has
    return t.emit("Cast", t.input(0), DstT=t.dtype(t.output()))


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
