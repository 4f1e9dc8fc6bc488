"""The ops of the integer program, by name: one definition each (its parts: base.py).

To add one, write a `ProgramOp` in the file of its kind. tests/program/test_ops.py and
tests/backends/test_lowerings.py then fail and name each place that has to be completed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.errors import GraphError
from qgraph.ops.movement import TakeAttrs, TransposeAttrs
from qgraph.ops.reach import Reach
from qgraph.ops.shapes import Sizes
from qgraph.ops.windows import MaxPoolAttrs
from qgraph.program.ops import elementwise, movement, products, reductions
from qgraph.program.ops.base import AnyProgramOp, Index, OpClass, Operand, ProgramOp
from qgraph.program.ops.elementwise import BinaryAttrs, ClipAttrs, LookupAttrs, RequantizeAttrs
from qgraph.program.ops.movement import ConcatAttrs, PadAttrs, ReshapeAttrs, SliceAttrs
from qgraph.program.ops.products import Conv2dAttrs, MatmulAttrs, WindowAttrs
from qgraph.program.ops.reductions import ReduceMaxAttrs, SoftmaxProgramAttrs, StandardizeAttrs

__all__ = [
    "OPS",
    "BinaryAttrs",
    "ClipAttrs",
    "ConcatAttrs",
    "Conv2dAttrs",
    "Index",
    "LookupAttrs",
    "MatmulAttrs",
    "MaxPoolAttrs",
    "OpClass",
    "Operand",
    "PadAttrs",
    "ProgramOp",
    "Reach",
    "ReduceMaxAttrs",
    "RequantizeAttrs",
    "ReshapeAttrs",
    "Sizes",
    "SliceAttrs",
    "SoftmaxProgramAttrs",
    "StandardizeAttrs",
    "TakeAttrs",
    "TransposeAttrs",
    "WindowAttrs",
    "program_op",
]


def _by_code() -> Mapping[str, AnyProgramOp]:
    every = (*products.OPS, *elementwise.OPS, *reductions.OPS, *movement.OPS)
    return MappingProxyType({op.name: op for op in sorted(every, key=lambda op: op.code)})


# In the order of their codes in `.qgi` files.
OPS: Mapping[str, AnyProgramOp] = _by_code()


def program_op(name: str) -> AnyProgramOp:
    """The definition of an op. Raises GraphError for an unknown name."""
    if name not in OPS:
        raise GraphError(f"unknown op `{name}`", hint=f"ops of a program: {', '.join(OPS)}")
    return OPS[name]
