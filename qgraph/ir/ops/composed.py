"""A function of one tensor that a graph writes out in several pointwise ops, as one op.

`steps` are the ops in order, each `(op, arguments, attributes)`: an argument that is an integer is
an earlier value (0 is x, i the result of step i), a float is a constant. The last step is the
result. Composition is exact: a table of it holds what the ops give one after the other in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from qgraph.ir.ops import activation, arithmetic
from qgraph.ir.ops.activation import POINTWISE, PointwiseFunction
from qgraph.ir.ops.base import Attrs, OpDef, same_as_first

Argument = int | float
Step = tuple[str, tuple[Argument, ...], tuple[tuple[str, Any], ...]]

# Ops that give each element from the elements at its place alone.
ELEMENTWISE: Mapping[str, OpDef] = {
    definition.name: definition
    for definition in (*activation.OPS, *arithmetic.OPS)
    if definition.name not in ("softmax", "log_softmax")
}


def composed(attrs: Attrs, x: Any) -> Any:
    """The steps, one after the other, in the dtype of `x`."""
    values = [x]
    for op, arguments, extra in attrs["steps"]:
        inputs = [values[a] if isinstance(a, int) else np.asarray(a, x.dtype) for a in arguments]
        evaluate = ELEMENTWISE[op].evaluate
        assert evaluate is not None
        values.append(evaluate(dict(extra), inputs))
    return np.asarray(values[-1], x.dtype)


def _evaluate(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    return composed(attrs, inputs[0])


def steps_of(op: str, attrs: Attrs) -> tuple[Step, ...] | None:
    """The steps of `composed`, and of functions that only `composed` can write in TensorFlow."""
    if op == "composed":
        steps: tuple[Step, ...] = attrs["steps"]
        return steps
    return tuple(_gelu(attrs)) if op == "gelu" else None


def _gelu(attrs: Attrs) -> Iterator[Step]:
    if attrs.get("approximate", False):
        inner: tuple[Step, ...] = (
            ("mul", (0, 0), ()),
            ("mul", (1, 0), ()),
            ("mul", (2, 0.044715), ()),
            ("add", (0, 3), ()),
            ("mul", (4, float(np.sqrt(2 / np.pi))), ()),
            ("tanh", (5,), ()),
        )
    else:
        inner = (("div", (0, float(np.sqrt(2.0))), ()), ("erf", (1,), ()))
    yield from inner
    last = len(inner)
    yield ("add", (last, 1.0), ())
    yield ("mul", (0, 0.5), ())
    yield ("mul", (last + 2, last + 1), ())


# Functions that may become a table.
TABLES: Mapping[str, PointwiseFunction] = {**POINTWISE, "composed": composed}

OPS = (OpDef("composed", (1, 1), same_as_first, _evaluate, attrs=("steps",), pointwise=True),)
