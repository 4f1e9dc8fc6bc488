"""Ops on elements: activations, arithmetic, comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qgraph.backends.onnx.floats.emission import FloatEmission
from qgraph.errors import UnsupportedError
from qgraph.foreign import AttrValue
from qgraph.ir.graph import Node
from qgraph.ir.ops import OPS
from qgraph.ir.ops.activation import EluAttrs, HardSigmoidAttrs, LeakyReluAttrs
from qgraph.ir.ops.arithmetic import CastAttrs
from qgraph.ir.ops.base import AnyOp
from qgraph.ir.ops.composed import steps_of
from qgraph.ir.ops.tabulated import TabulatedAttrs
from qgraph.ir.types import TensorType

Lower = Callable[[FloatEmission, Node], None]
# Writes nodes for inputs in one layout, and returns the name of the result.
Write = Callable[..., str]
NEAR_ZERO = 0.5  # where exp(x) - 1 and log(1 + x) lose digits


def elementwise(write: Write) -> Lower:
    """An op on elements, in any layout that its inputs share."""

    def lower(e: FloatEmission, node: Node) -> None:
        nchw = e.common_layout(*node.inputs)
        names = [e.get(value, nchw) for value in node.inputs]
        e.put(node.name, write(e, node, *names), nchw)

    return lower


def of_floats(lower: Lower) -> Lower:
    """An op whose ONNX form is different or undefined for integers."""

    def checked(e: FloatEmission, node: Node) -> None:
        kind = e.types[node.inputs[0]]
        if not kind.is_float:
            raise UnsupportedError(
                f"`{node.op}` of {kind.dtype} has no equivalent in ONNX", node=node.name
            )
        lower(e, node)

    return checked


def simple(op: str, **attrs: AttrValue) -> Lower:
    """An op that ONNX has, with the same inputs."""
    return elementwise(lambda e, node, *names: e.op(op, *names, stem=node.name, **attrs))


def chain(*steps: tuple[str, tuple[float, ...]]) -> Lower:
    """ONNX ops one after the other, each with numbers after its first input."""

    def write(e: FloatEmission, node: Node, x: str) -> str:
        for op, numbers in steps:
            x = e.op(op, x, *(e.scalar(n, node.inputs[0]) for n in numbers), stem=node.name)
        return x

    return elementwise(write)


def _square(e: FloatEmission, node: Node, x: str) -> str:
    return e.op("Mul", x, x, stem=node.name)


def _squared_difference(e: FloatEmission, node: Node, a: str, b: str) -> str:
    difference = e.op("Sub", a, b, stem=f"{node.name}/difference")
    return e.op("Mul", difference, difference, stem=node.name)


def _not_equal(e: FloatEmission, node: Node, a: str, b: str) -> str:
    return e.op("Not", e.op("Equal", a, b, stem=f"{node.name}/equal"), stem=node.name)


def _swish(e: FloatEmission, node: Node, x: str) -> str:
    return e.op("Mul", x, e.op("Sigmoid", x, stem=f"{node.name}/sigmoid"), stem=node.name)


def _leaky_relu(e: FloatEmission, node: Node, x: str) -> str:
    return e.op("LeakyRelu", x, stem=node.name, alpha=node.typed(LeakyReluAttrs).alpha)


def _elu(e: FloatEmission, node: Node, x: str) -> str:
    return e.op("Elu", x, stem=node.name, alpha=node.typed(EluAttrs).alpha)


def _hard_sigmoid(e: FloatEmission, node: Node) -> None:
    attrs = node.typed(HardSigmoidAttrs)
    if attrs.alpha is None or attrs.beta is None:
        return chain(("Add", (3.0,)), ("Clip", (0.0, 6.0)), ("Div", (6.0,)))(e, node)
    return simple("HardSigmoid", alpha=attrs.alpha, beta=attrs.beta)(e, node)


def _cast(e: FloatEmission, node: Node, x: str) -> str:
    return e.cast(x, node.typed(CastAttrs).dtype, node.name)


def _tabulated(e: FloatEmission, node: Node, x: str) -> str:
    attrs = node.typed(TabulatedAttrs)

    def op(name: str, *inputs: str) -> str:
        return e.op(name, *inputs, stem=f"{node.name}/{name.lower()}")

    def number(value: float) -> str:
        return e.scalar(value, node.inputs[0])

    place = op("Sub", op("Round", op("Mul", x, number(2.0**attrs.log2_steps))), number(attrs.first))
    place = op("Clip", place, number(0), number(len(attrs.values) - 1))
    values = np.asarray(attrs.values, e.dtype(node.inputs[0]))
    rows = e.numbers(values, f"{node.name}/values", e.dtype(node.inputs[0]))
    return e.op("Gather", rows, e.cast(place, "int64", f"{node.name}/index"), stem=node.name)


def _near_zero(e: FloatEmission, node: Node, x: str, near: str, far: str) -> str:
    limit = e.scalar(NEAR_ZERO, node.inputs[0])
    small = e.op("Less", e.op("Abs", x, stem=f"{node.name}/size"), limit, stem=f"{node.name}/small")
    return e.op("Where", small, near, far, stem=node.name)


def _expm1(e: FloatEmission, node: Node, x: str) -> str:
    """`2 t / (1 - t)` with `t = tanh(x / 2)` near 0, where `exp(x) - 1` would lose digits."""
    one, two = (e.scalar(n, node.inputs[0]) for n in (1.0, 2.0))

    def op(name: str, *inputs: str) -> str:
        return e.op(name, *inputs, stem=f"{node.name}/{name.lower()}")

    t = op("Tanh", op("Div", x, two))
    near = op("Div", op("Mul", t, two), op("Sub", one, t))
    return _near_zero(e, node, x, near, op("Sub", op("Exp", x), one))


def _log1p(e: FloatEmission, node: Node, x: str) -> str:
    """`log(u) x / (u - 1)` with `u = 1 + x` near 0, or x where u is 1."""
    one = e.scalar(1.0, node.inputs[0])

    def op(name: str, *inputs: str) -> str:
        return e.op(name, *inputs, stem=f"{node.name}/{name.lower()}")

    u = op("Add", x, one)
    far, rest = op("Log", u), op("Sub", u, one)
    same = op("Equal", u, one)
    near = op("Where", same, x, op("Div", op("Mul", far, x), op("Where", same, one, rest)))
    return _near_zero(e, node, x, near, far)


def _steps(e: FloatEmission, node: Node) -> None:
    """A function that is written in steps, each an op of this table."""
    kind, values = e.types[node.inputs[0]], [node.inputs[0]]
    for op, arguments, extra in steps_of(node.attributes) or ():
        inputs = [values[a] if isinstance(a, int) else _constant(e, node, a) for a in arguments]
        step = Node(e.names.fresh(f"{node.name}/{op}"), op, tuple(inputs), dict(extra))
        e.emit(step, ELEMENTWISE[op])
        values.append(step.name)
    assert e.types[values[-1]] == kind
    e.alias(node.name, values[-1])


def _constant(e: FloatEmission, node: Node, number: float) -> str:
    value = e.names.fresh(f"{node.name}/number")
    e.constants[value] = np.asarray(number, e.dtype(node.inputs[0]))
    e.types[value] = TensorType(e.types[node.inputs[0]].dtype, ())
    return value


def _named(op: AnyOp) -> Lower:
    lower = simple(op.formats.onnx)
    return lower if op.formats.of_integers else of_floats(lower)


ELEMENTWISE: Mapping[str, Lower] = {
    **{name: _named(op) for name, op in OPS.items() if op.formats.onnx},
    "relu6": chain(("Clip", (0.0, 6.0))),
    "leaky_relu": elementwise(_leaky_relu),
    "swish": elementwise(_swish),
    "hard_sigmoid": _hard_sigmoid,
    "elu": elementwise(_elu),
    "gelu": _steps,
    "composed": _steps,
    "squared_difference": elementwise(_squared_difference),
    "expm1": elementwise(_expm1),
    "log1p": elementwise(_log1p),
    "tabulated": elementwise(_tabulated),
    "rsqrt": chain(("Sqrt", ()), ("Reciprocal", ())),
    "square": elementwise(_square),
    "greater": simple("Greater"),
    "greater_equal": simple("GreaterOrEqual"),
    "equal": simple("Equal"),
    "not_equal": elementwise(_not_equal),
    "logical_and": simple("And"),
    "logical_or": simple("Or"),
    "logical_not": simple("Not"),
    "select": simple("Where"),
    "cast": elementwise(_cast),
}
