"""Batch norms and layer norms, and the part of a layer norm that works on codes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.backends.tf.builder import DType
from qgraph.backends.tf.emission import Emission
from qgraph.backends.tf.lower.base import Lower
from qgraph.ir.graph import Node
from qgraph.ir.ops.integer_softmax import IntegerSoftmaxAttrs, exponentials
from qgraph.ir.ops.norm import NormAttrs
from qgraph.ir.ops.standardize import StandardizationAttrs, standardization
from qgraph.quant.topology import scalar_exponent


def _batch_norm(e: Emission, node: Node) -> str:
    dtype = e.dtypes[node.name]
    return e.builder.add(
        "FusedBatchNormV3", node.name, [e.tensor(v, dtype) for v in node.inputs],
        T=DType(dtype), U=DType(dtype), epsilon=node.typed(NormAttrs).epsilon, is_training=False,
    )  # fmt: skip


def _layer_norm(e: Emission, node: Node) -> str:
    """Step by step in float64, as in the reference."""
    wide, name = DType("float64"), node.name
    axis = e.builder.const(np.array([-1], np.int32), f"{name}/axis")

    def add(op: str, step: str, *inputs: str) -> str:
        return e.builder.add(op, f"{name}/{step}", list(inputs), T=wide)

    def mean(value: str, step: str) -> str:
        axes = {"T": wide, "Tidx": DType("int32"), "keep_dims": True}
        return e.builder.add("Mean", f"{name}/{step}", [value, axis], **axes)

    x, gamma, beta = (e.tensor(v, "float64") for v in node.inputs)
    centred = add("Sub", "centred", x, mean(x, "mean"))
    variance = mean(add("Square", "square", centred), "variance")
    epsilon = e.builder.scalar(node.typed(NormAttrs).epsilon, "float64")
    deviation = add("Sqrt", "deviation", add("AddV2", "shifted", variance, epsilon))
    normal = add("RealDiv", "normal", centred, deviation)
    result = add("AddV2", "result", add("Mul", "scaled", normal, gamma), beta)
    types = {"SrcT": wide, "DstT": DType(e.dtypes[node.name])}
    return e.builder.add("Cast", name, [result], **types)


def _standardize(e: Emission, node: Node) -> str:
    """On codes in int64, as in the reference. The root is computed in float64 and corrected."""
    name, source = node.name, node.inputs[0]
    held, t = e.type_name(source), DType("int64")
    channels = int((e.graph.types[source].shape or ())[-1] or 0)
    attrs, exponent = node.typed(StandardizationAttrs), scalar_exponent(e.exponents, source)
    numbers = standardization(attrs, channels, exponent, name)
    axis = e.builder.const(np.array([-1], np.int32), f"{name}/axis")

    def add(op: str, step: str, *inputs: str) -> str:
        return e.builder.add(op, f"{name}/{step}", list(inputs), T=t)

    def number(value: int) -> str:
        return e.builder.scalar(value, "int64")

    def total(value: str, step: str) -> str:
        axes = {"T": t, "Tidx": DType("int32"), "keep_dims": True}
        return e.builder.add("Sum", f"{name}/{step}", [value, axis], **axes)

    def cast(value: str, step: str, start: str, end: str) -> str:
        types = {"SrcT": DType(start), "DstT": DType(end)}
        return e.builder.add("Cast", f"{name}/{step}", [value], **types)

    unit = e.builder.scalar(float(np.ldexp(1.0, exponent)), held)
    x = e.builder.add("Mul", f"{name}/codes", [e.tensor(source), unit], T=DType(held))
    x = cast(x, "as_int64", held, "int64")
    sums = total(x, "sum")
    squares = add("Mul", "scaled", total(add("Mul", "square", x, x), "squares"), number(channels))
    spread = add("Sub", "spread", squares, add("Mul", "sum_squared", sums, sums))
    guarded = add("Mul", "guarded", spread, number(4**numbers.guard))
    spread = add("AddV2", "with_epsilon", guarded, number(numbers.epsilon))
    real = cast(spread, "as_float64", "int64", "float64")
    real = e.builder.add("Sqrt", f"{name}/sqrt", [real], T=DType("float64"))
    root = cast(real, "root", "float64", "int64")
    for op, one in (("Greater", "over"), ("LessEqual", "under")):
        tried = root if one == "over" else add("AddV2", "next", root, number(1))
        off = add(op, one, add("Mul", f"{one}/square", tried, tried), spread)
        step = cast(off, f"{one}/step", "bool", "int64")
        root = add("Sub" if one == "over" else "AddV2", f"{one}/root", root, step)
    root = add("AddV2", "divisor", root, number(1))
    deviation = add("Sub", "deviation", add("Mul", "whole", x, number(channels)), sums)
    doubled = add("Mul", "doubled", deviation, number(2 << numbers.shift))
    double_root = add("Mul", "double_divisor", root, number(2))
    codes = add("FloorDiv", "divided", add("AddV2", "rounded", doubled, root), double_root)
    made = e.dtypes[name]
    value = cast(codes, "as_float", "int64", made)
    step = e.builder.scalar(float(np.ldexp(1.0, -attrs.exponent)), made)
    return e.builder.add("Mul", name, [value, step], T=DType(made))


def _integer_softmax(e: Emission, node: Node) -> str:
    """On codes in int64, as in the reference; exponentials are entries of a constant."""
    name, source = node.name, node.inputs[0]
    held, t = e.type_name(source), DType("int64")
    attrs, exponent = node.typed(IntegerSoftmaxAttrs), scalar_exponent(e.exponents, source)
    table = exponentials(attrs.domain, exponent)
    axis = e.builder.const(np.array([-1], np.int32), f"{name}/axis")

    def add(op: str, step: str, *inputs: str) -> str:
        return e.builder.add(op, f"{name}/{step}", list(inputs), T=t)

    def number(value: int) -> str:
        return e.builder.scalar(value, "int64")

    def reduced(op: str, value: str, step: str) -> str:
        axes = {"T": t, "Tidx": DType("int32"), "keep_dims": True}
        return e.builder.add(op, f"{name}/{step}", [value, axis], **axes)

    def cast(value: str, step: str, start: str, end: str) -> str:
        types = {"SrcT": DType(start), "DstT": DType(end)}
        return e.builder.add("Cast", f"{name}/{step}", [value], **types)

    unit = e.builder.scalar(float(np.ldexp(1.0, exponent)), held)
    x = e.builder.add("Mul", f"{name}/codes", [e.tensor(source), unit], T=DType(held))
    x = cast(x, "as_int64", held, "int64")
    distance = add("Sub", "distance", reduced("Max", x, "most"), x)
    distance = add("Minimum", "nearer", distance, number(len(table) - 1))
    entries = e.builder.const(table, f"{name}/table")
    gather = {"Tparams": t, "Tindices": t, "Taxis": DType("int32")}
    first = e.builder.scalar(0, "int32")
    found = e.builder.add("GatherV2", f"{name}/e", [entries, distance, first], **gather)
    total = reduced("Sum", found, "total")
    raised = add("Mul", "raised", found, number(1 << attrs.exponent))
    rounded = add("AddV2", "rounded", raised, add("FloorDiv", "half", total, number(2)))
    codes = add("Minimum", "shares", add("FloorDiv", "divided", rounded, total),
                number(attrs.spec.hi))  # fmt: skip
    made = e.dtypes[name]
    value = cast(codes, "as_float", "int64", made)
    step = e.builder.scalar(float(np.ldexp(1.0, -attrs.exponent)), made)
    return e.builder.add("Mul", name, [value, step], T=DType(made))


NORM: Mapping[str, Lower] = {
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "standardize": _standardize,
    "integer_softmax": _integer_softmax,
}
