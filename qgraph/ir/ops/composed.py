"""One op for a function of one tensor that a graph computes by several pointwise ops.

`steps` are the ops in order, each `(op, arguments, attributes)`: an argument that is an integer is
an earlier value (0 is x, i the result of step i), a float is a constant. The last step is the
result. Composition is exact: its table has the results of the ops in float64, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops import activation, arithmetic, tabulated
from qgraph.ir.ops.activation import GeluAttrs
from qgraph.ir.ops.base import AnyOp, Elements, OpDef, same_as_first
from qgraph.ir.types import Array
from qgraph.ops.attributes import Attributes, attribute, attributes_of

Argument = int | float
Step = tuple[str, tuple[Argument, ...], tuple[tuple[str, object], ...]]
Steps = tuple[Step, ...]

# Ops whose elements depend only on the elements at their position.
ELEMENTWISE: dict[str, AnyOp] = {
    definition.name: definition
    for definition in (*activation.OPS, *tabulated.OPS, *arithmetic.OPS)
    if definition.elementwise
}


@dataclass(frozen=True, kw_only=True)
class ComposedAttrs(Attributes):
    """A function in steps."""

    steps: Steps = attribute("ops, each with its arguments and its attributes")

    def __post_init__(self) -> None:
        super().__post_init__()
        for place, (op, arguments, extra) in enumerate(self.steps):
            if op not in ELEMENTWISE:
                raise GraphError(f"attribute `steps` has `{op}`, which is not elementwise")
            if any(isinstance(a, int) and not 0 <= a <= place for a in arguments):
                raise GraphError(f"attribute `steps`: `{op}` reads a value that is not computed")
            low, high = ELEMENTWISE[op].arity
            if not low <= len(arguments) <= (high or low):
                raise GraphError(f"attribute `steps` gives `{op}` {len(arguments)} arguments")
            attributes_of(ELEMENTWISE[op].attributes, dict(extra))


def composed(attrs: ComposedAttrs, x: Array) -> Array:
    """The steps, one after the other, in the dtype of `x`."""
    values = [x]
    for op, arguments, extra in attrs.steps:
        inputs = [values[a] if isinstance(a, int) else np.asarray(a, x.dtype) for a in arguments]
        values.append(evaluated(op, dict(extra), inputs))
    return np.asarray(values[-1], x.dtype)


def evaluated(op: str, attrs: Mapping[str, object], inputs: Sequence[Array]) -> Array:
    """The float result of an elementwise op."""
    definition = ELEMENTWISE[op]
    assert definition.evaluate is not None
    result: Array = definition.evaluate(attributes_of(definition.attributes, attrs), inputs)
    return result


def _evaluate(attrs: ComposedAttrs, inputs: Sequence[Array]) -> Array:
    return composed(attrs, inputs[0])


def _nonnegative(attrs: ComposedAttrs, inputs: Sequence[bool]) -> bool:
    known = [inputs[0]]
    for op, arguments, extra in attrs.steps:
        given = [known[a] if isinstance(a, int) else a >= 0 for a in arguments]
        definition = ELEMENTWISE[op]
        known.append(
            definition.nonnegative(attributes_of(definition.attributes, dict(extra)), given)
        )
    return known[-1]


def steps_of(attrs: Attributes) -> Steps | None:
    """The steps of `composed`, and of functions that TensorFlow has only in steps."""
    if isinstance(attrs, ComposedAttrs):
        return attrs.steps
    return tuple(_gelu(attrs)) if isinstance(attrs, GeluAttrs) else None


def _gelu(attrs: GeluAttrs) -> Iterator[Step]:
    if attrs.approximate:
        inner: Steps = (
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


OPS: tuple[AnyOp, ...] = (
    OpDef(
        "composed", (1, 1), ComposedAttrs, same_as_first, _evaluate,
        nonnegative=_nonnegative, elementwise=True, pointwise=True, takes=Elements.FLOATS,
    ),
)  # fmt: skip

# Functions that may become a table.
TABLES: Mapping[str, AnyOp] = {
    op.name: op for op in (*activation.OPS, *tabulated.OPS, *OPS) if op.pointwise
}
