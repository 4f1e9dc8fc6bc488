"""Activations and elementwise arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.backends.tf.builder import DType
from qgraph.backends.tf.emission import Emission
from qgraph.backends.tf.lower.base import Lower, factor, simple
from qgraph.ir.graph import Node
from qgraph.ir.ops import OPS
from qgraph.ir.ops.activation import EluAttrs, HardSigmoidAttrs, LeakyReluAttrs, six_code
from qgraph.ir.ops.arithmetic import CastAttrs
from qgraph.ir.ops.tabulated import TabulatedAttrs
from qgraph.quant.topology import known_exponent


def _relu6(e: Emission, node: Node) -> str:
    """On a grid, the clip is the grid point nearest to 6, as in the integer reference."""
    dtype = e.dtypes[node.name]
    x = e.tensor(node.inputs[0], dtype)
    if node.inputs[0] not in e.bounds:
        return e.builder.add("Relu6", node.name, [x], T=DType(dtype))
    exponent = known_exponent(e.exponents, node.inputs[0])
    six = np.ldexp(six_code(exponent).astype(np.float64), -np.asarray(exponent)).astype(dtype)
    x = e.builder.add("Relu", f"{node.name}/relu", [x], T=DType(dtype))
    return e.builder.add("Minimum", node.name, [x, factor(e, node.name, six)], T=DType(dtype))


def _via(*steps: tuple[str, float | None]) -> Lower:
    """A chain of ops on x, each with one scalar where it has two inputs: (op, scalar)."""

    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        x = start = e.tensor(node.inputs[0], dtype)
        for index, (op, scalar) in enumerate(steps):
            name = node.name if index == len(steps) - 1 else f"{node.name}/{op.lower()}"
            inputs = (
                [x]
                if scalar is None
                else [x, start if np.isnan(scalar) else e.builder.scalar(scalar, dtype)]
            )
            x = e.builder.add(op, name, inputs, T=DType(dtype))
        return x

    return lower


FIRST_INPUT = float("nan")  # in `_via`: the second input is x itself


def _hard_sigmoid(e: Emission, node: Node) -> str:
    attrs = node.typed(HardSigmoidAttrs)
    if attrs.alpha is None or attrs.beta is None:
        return _via(("AddV2", 3.0), ("Relu6", None), ("RealDiv", 6.0))(e, node)
    return _via(("Mul", attrs.alpha), ("AddV2", attrs.beta), ("Maximum", 0.0), ("Minimum", 1.0))(
        e, node
    )


def _elu(e: Emission, node: Node) -> str:
    """TensorFlow's Elu has no alpha: max(x, 0) + alpha * elu(min(x, 0))."""
    alpha, dtype = node.typed(EluAttrs).alpha, e.dtypes[node.name]
    if alpha == 1:
        return simple("Elu")(e, node)

    def add(op: str, step: str, *inputs: str) -> str:
        name = f"{node.name}/{step}" if step else node.name
        return e.builder.add(op, name, list(inputs), T=DType(dtype))

    x = e.tensor(node.inputs[0], dtype)
    below = add("Elu", "elu", add("Minimum", "below", x, e.builder.scalar(0.0, dtype)))
    scaled = add("Mul", "scaled", below, e.builder.scalar(alpha, dtype))
    return add("AddV2", "", add("Relu", "above", x), scaled)


def _leaky_relu(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    return e.builder.add(
        "LeakyRelu",
        node.name,
        [e.tensor(node.inputs[0], dtype)],
        T=DType(dtype),
        alpha=node.typed(LeakyReluAttrs).alpha,
    )


def _tabulated(e: Emission, node: Node) -> str:
    attrs, dtype = node.typed(TabulatedAttrs), e.dtypes[node.name]

    def step(op: str, stem: str, *inputs: str) -> str:
        return e.builder.add(op, f"{node.name}/{stem}", list(inputs), T=DType(dtype))

    def scalar(value: float) -> str:
        return e.builder.scalar(value, dtype)

    x = e.tensor(node.inputs[0], dtype)
    steps = step("Round", "steps", step("Mul", "scaled", x, scalar(2.0**attrs.log2_steps)))
    place = step("Sub", "place", steps, scalar(attrs.first))
    place = step("Maximum", "from_first", place, scalar(0))
    place = step("Minimum", "to_last", place, scalar(len(attrs.values) - 1))
    index = e.builder.add(
        "Cast", f"{node.name}/index", [place], SrcT=DType(dtype), DstT=DType("int32")
    )
    values = e.builder.const(np.asarray(attrs.values, dtype), f"{node.name}/values")
    axis = e.builder.const(np.int32(0), f"{node.name}/axis")
    return e.builder.add(
        "GatherV2", node.name, [values, index, axis],
        Tparams=DType(dtype), Tindices=DType("int32"), Taxis=DType("int32"),
    )  # fmt: skip


def _comparison(op: str) -> Lower:
    def lower(e: Emission, node: Node) -> str:
        dtype = e.type_name(node.inputs[0])
        inputs = [e.tensor(v, dtype) for v in node.inputs]
        return e.builder.add(op, node.name, inputs, T=DType(dtype))

    return lower


def _logical(op: str) -> Lower:
    return lambda e, node: e.builder.add(op, node.name, [e.tensor(v) for v in node.inputs])


def _select(e: Emission, node: Node) -> str:
    condition, *values = node.inputs
    dtype = e.dtypes[node.name]
    inputs = [e.tensor(condition), *(e.tensor(v, dtype) for v in values)]
    return e.builder.add("SelectV2", node.name, inputs, T=DType(dtype))


def _cast(e: Emission, node: Node) -> str:
    source = e.type_name(node.inputs[0])
    return e.builder.add(
        "Cast",
        node.name,
        [e.tensor(node.inputs[0])],
        SrcT=DType(source),
        DstT=DType(node.typed(CastAttrs).dtype),
    )


POINTWISE: Mapping[str, Lower] = {
    **{name: simple(op.formats.tensorflow) for name, op in OPS.items() if op.formats.tensorflow},
    "greater": _comparison("Greater"),
    "greater_equal": _comparison("GreaterEqual"),
    "equal": _comparison("Equal"),
    "not_equal": _comparison("NotEqual"),
    "logical_and": _logical("LogicalAnd"),
    "logical_or": _logical("LogicalOr"),
    "logical_not": _logical("LogicalNot"),
    "select": _select,
    "cast": _cast,
    "relu6": _relu6,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "swish": _via(("Sigmoid", None), ("Mul", FIRST_INPUT)),
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": _via(("AddV2", 3.0), ("Relu6", None), ("Mul", FIRST_INPUT), ("RealDiv", 6.0)),
    "softmax": simple("Softmax"),
    "tabulated": _tabulated,
}
