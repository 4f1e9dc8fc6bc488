"""Rules that write ops that compute as steps; moves.py has those for ops that move values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Node
from qgraph.ir.ops.activation import six_code
from qgraph.ir.ops.attributes import SlidingAttrs
from qgraph.ir.ops.integer_softmax import EXPONENTIAL_BITS, IntegerSoftmaxAttrs, exponentials
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.ops.pool import PoolAttrs, ReductionAttrs
from qgraph.ir.ops.standardize import StandardizationAttrs, standardization
from qgraph.ir.ops.structure import TableAttrs, table
from qgraph.ir.ops.windows import explicit_pads
from qgraph.ir.reading import spec_of
from qgraph.ir.types import AnyExponent, Exponent
from qgraph.ops.attribute_types import Pads, Pair
from qgraph.ops.shapes import Sizes
from qgraph.program.ops import OPS as PROGRAM_OPS
from qgraph.program.writer import ProgramWriter, Rule

ONE = (1, 1)


def _pads(node: Node, image: Sizes, kernel: Pair, dilations: Pair) -> Pads:
    window = node.typed(SlidingAttrs)
    pads = explicit_pads(image[1:3], kernel, window.strides, dilations, window.padding)
    (top, bottom), (left, right) = pads
    return (int(top), int(bottom)), (int(left), int(right))


def _window(node: Node, writer: ProgramWriter) -> dict[str, object]:
    image, (height, width, *_) = (writer.shape(v) for v in node.inputs)
    attrs = node.typed(ConvAttrs)
    return {
        "strides": attrs.strides,
        "dilations": attrs.dilations,
        "pads": _pads(node, image, (height, width), attrs.dilations),
    }


def _conv2d(node: Node, writer: ProgramWriter) -> None:
    image, filters = (writer.shape(v) for v in node.inputs)
    groups = image[3] // filters[2]
    writer.step("conv2d", node.inputs, node.name, **_window(node, writer), groups=groups)


def _depthwise(node: Node, writer: ProgramWriter) -> None:
    writer.step("depthwise_conv2d", node.inputs, node.name, **_window(node, writer))


def _relu(node: Node, writer: ProgramWriter) -> None:
    writer.step("clip", node.inputs, node.name, low=0, high=None)


def _relu6(node: Node, writer: ProgramWriter) -> None:
    six = six_code(np.asarray(writer.tensors[node.inputs[0]].exponent))
    writer.step("clip", node.inputs, node.name, low=0, high=plain(six))


def _quantize(node: Node, writer: ProgramWriter) -> None:
    spec = spec_of(node)
    shift = np.asarray(writer.tensors[node.inputs[0]].exponent) - np.asarray(spec.exponent)
    writer.step(
        "requantize",
        node.inputs,
        node.name,
        shift=plain(shift),
        rounding=spec.rounding,
        overflow=spec.overflow,
        low=spec.lo,
        high=spec.hi,
    )


def _lookup(node: Node, writer: ProgramWriter) -> None:
    exponent = writer.tensors[node.inputs[0]].exponent
    if not isinstance(exponent, int):
        raise UnsupportedError("a table needs one scale for its input", node=node.name)
    attrs = node.typed(TableAttrs)
    entries = writer.table(f"{node.name}/table", table(attrs, exponent), attrs.exponent)
    inputs = (node.inputs[0], entries)
    writer.step("lookup", inputs, node.name, offset=attrs.domain.lo)


def _embedding(node: Node, writer: ProgramWriter) -> None:
    """Codes outside of the table pick its first or last row."""
    table, indices = node.inputs
    last = writer.shape(table)[0] - 1
    x = writer.tensors[indices]
    if x.low < 0 or x.high > last:
        name = writer.fresh(f"{node.name}/row")
        writer.tensors[name] = replace(x, name=name, low=max(x.low, 0), high=min(x.high, last))
        writer.step("clip", (indices,), name, low=0, high=last)
        indices = name
    writer.step("embedding", (indices, table), node.name)


def _standardize(node: Node, writer: ProgramWriter) -> None:
    x = writer.tensors[node.inputs[0]]
    numbers = standardization(node.typed(StandardizationAttrs), x.shape[-1], x.exponent, node.name)
    writer.step("standardize", node.inputs, node.name, **asdict(numbers))


def _softmax(node: Node, writer: ProgramWriter) -> None:
    exponent = writer.tensors[node.inputs[0]].exponent
    if not isinstance(exponent, int):
        raise UnsupportedError("a softmax needs one scale for its input", node=node.name)
    attrs = node.typed(IntegerSoftmaxAttrs)
    codes = exponentials(attrs.domain, exponent)
    table = writer.table(f"{node.name}/table", codes, EXPONENTIAL_BITS)
    inputs = (node.inputs[0], table)
    writer.step("softmax", inputs, node.name, bits=attrs.exponent, high=attrs.spec.hi)


def _max_pool(node: Node, writer: ProgramWriter) -> None:
    attrs = node.typed(PoolAttrs)
    ksize, strides = attrs.ksize, attrs.strides
    pads = _pads(node, writer.shape(node.inputs[0]), ksize, ONE)
    writer.step("max_pool", node.inputs, node.name, ksize=ksize, strides=strides, pads=pads)


def _reduce_max(node: Node, writer: ProgramWriter) -> None:
    rank = len(writer.shape(node.inputs[0]))
    attrs = node.typed(ReductionAttrs)
    axes, keepdims = tuple(sorted({a % rank for a in attrs.axes})), attrs.keepdims
    writer.step("reduce_max", node.inputs, node.name, axes=axes, keepdims=keepdims)


def _as(op: str) -> Rule:
    return lambda node, writer: writer.step(op, node.inputs, node.name)


def plain(number: AnyExponent) -> Exponent:
    """One number if all are equal, otherwise a tuple along the last axis."""
    flat = np.asarray(number).reshape(-1)
    same = (flat == flat[0]).all()
    return int(flat[0]) if same else tuple(int(n) for n in flat)


RULES: Mapping[str, Rule] = {
    **{op.name: _as(op.name) for op in PROGRAM_OPS.values() if op.plain},
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise,
    "bias_add": _as("add"),
    "relu": _relu,
    "relu6": _relu6,
    "quantize": _quantize,
    "lookup": _lookup,
    "embedding": _embedding,
    "standardize": _standardize,
    "integer_softmax": _softmax,
    "max_pool": _max_pool,
    "reduce_max": _reduce_max,
}
