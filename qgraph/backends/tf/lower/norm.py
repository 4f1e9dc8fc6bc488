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
    """In the graph's own type: TensorFlow has no fused batch norm in float64."""
    dtype = e.dtypes[node.name] = e.graph.types[node.name].dtype
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


class _OnCodes:
    """Ops in int64 on the codes of a node's input, as in the reference."""

    def __init__(self, e: Emission, node: Node) -> None:
        self.e, self.name, self.source = e, node.name, node.inputs[0]
        self.exponent = scalar_exponent(e.exponents, self.source)
        self.last = e.builder.const(np.array([-1], np.int32), f"{self.name}/axis")

    def add(self, op: str, step: str, *inputs: str) -> str:
        return self.e.builder.add(op, f"{self.name}/{step}", list(inputs), T=DType("int64"))

    def number(self, value: int) -> str:
        return self.e.builder.scalar(value, "int64")

    def reduced(self, op: str, value: str, step: str) -> str:
        """A reduction over the last axis, which stays with size 1."""
        axes = {"T": DType("int64"), "Tidx": DType("int32"), "keep_dims": True}
        return self.e.builder.add(op, f"{self.name}/{step}", [value, self.last], **axes)

    def cast(self, value: str, step: str, start: str, end: str) -> str:
        types = {"SrcT": DType(start), "DstT": DType(end)}
        return self.e.builder.add("Cast", f"{self.name}/{step}", [value], **types)

    def codes(self) -> str:
        held = self.e.type_name(self.source)
        unit = self.e.builder.scalar(float(np.ldexp(1.0, self.exponent)), held)
        inputs = [self.e.tensor(self.source), unit]
        x = self.e.builder.add("Mul", f"{self.name}/codes", inputs, T=DType(held))
        return self.cast(x, "as_int64", held, "int64")

    def result(self, codes: str, exponent: int) -> str:
        """The values of codes, as the result of the node."""
        made = self.e.dtypes[self.name]
        value = self.cast(codes, "as_float", "int64", made)
        step = self.e.builder.scalar(float(np.ldexp(1.0, -exponent)), made)
        return self.e.builder.add("Mul", self.name, [value, step], T=DType(made))


def _standardize(e: Emission, node: Node) -> str:
    """The root is computed in float64 and corrected."""
    on, attrs = _OnCodes(e, node), node.typed(StandardizationAttrs)
    channels = int((e.graph.types[on.source].shape or ())[-1] or 0)
    numbers = standardization(attrs, channels, on.exponent, node.name)
    x = on.codes()
    sums = on.reduced("Sum", x, "sum")
    squares = on.reduced("Sum", on.add("Mul", "square", x, x), "squares")
    squares = on.add("Mul", "scaled", squares, on.number(channels))
    spread = on.add("Sub", "spread", squares, on.add("Mul", "sum_squared", sums, sums))
    guarded = on.add("Mul", "guarded", spread, on.number(4**numbers.guard))
    spread = on.add("AddV2", "with_epsilon", guarded, on.number(numbers.epsilon))
    real = on.cast(spread, "as_float64", "int64", "float64")
    real = e.builder.add("Sqrt", f"{node.name}/sqrt", [real], T=DType("float64"))
    root = on.cast(real, "root", "float64", "int64")
    for op, one in (("Greater", "over"), ("LessEqual", "under")):
        tried = root if one == "over" else on.add("AddV2", "next", root, on.number(1))
        off = on.add(op, one, on.add("Mul", f"{one}/square", tried, tried), spread)
        step = on.cast(off, f"{one}/step", "bool", "int64")
        root = on.add("Sub" if one == "over" else "AddV2", f"{one}/root", root, step)
    root = on.add("AddV2", "divisor", root, on.number(1))
    deviation = on.add("Sub", "deviation", on.add("Mul", "whole", x, on.number(channels)), sums)
    doubled = on.add("Mul", "doubled", deviation, on.number(2 << numbers.shift))
    double_root = on.add("Mul", "double_divisor", root, on.number(2))
    rounded = on.add("AddV2", "rounded", doubled, root)
    return on.result(on.add("FloorDiv", "divided", rounded, double_root), attrs.exponent)


def _integer_softmax(e: Emission, node: Node) -> str:
    """Exponentials are entries of a constant."""
    on, attrs = _OnCodes(e, node), node.typed(IntegerSoftmaxAttrs)
    table = exponentials(attrs.domain, on.exponent)
    x = on.codes()
    distance = on.add("Sub", "distance", on.reduced("Max", x, "most"), x)
    distance = on.add("Minimum", "nearer", distance, on.number(len(table) - 1))
    entries = e.builder.const(table, f"{node.name}/table")
    gather = {"Tparams": DType("int64"), "Tindices": DType("int64"), "Taxis": DType("int32")}
    places = [entries, distance, e.builder.scalar(0, "int32")]
    found = e.builder.add("GatherV2", f"{node.name}/e", places, **gather)
    total = on.reduced("Sum", found, "total")
    raised = on.add("Mul", "raised", found, on.number(1 << attrs.exponent))
    half = on.add("FloorDiv", "half", total, on.number(2))
    shares = on.add("FloorDiv", "divided", on.add("AddV2", "rounded", raised, half), total)
    return on.result(on.add("Minimum", "shares", shares, on.number(attrs.spec.hi)), attrs.exponent)


NORM: Mapping[str, Lower] = {
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "standardize": _standardize,
    "integer_softmax": _integer_softmax,
}
