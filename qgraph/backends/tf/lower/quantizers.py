"""Quantizers and tables, exact in the float type of their input."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.backends.tf.builder import DType
from qgraph.backends.tf.emission import Emission
from qgraph.backends.tf.lower.base import Lower, factor
from qgraph.ir.graph import Node
from qgraph.ir.ops.structure import TableAttrs, table
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, Fixed, Overflow, Rounding, rounding_of_numbers
from qgraph.numerics import dequantize
from qgraph.quant.topology import scalar_exponent


def _quantize(e: Emission, node: Node) -> str:
    """Scale, round, clip, scale back; each step is exact in the input's float type.

    Wrapping needs all digits of any number, so it uses float64; so do ranges beyond 24 bits.
    """
    spec = spec_of(node)
    held = e.dtypes[node.name]
    wide = spec.overflow == Overflow.WRAP or held == "float64"
    dtype = "float64" if wide else e.type_name(node.inputs[0])
    up = np.ldexp(1.0, np.asarray(spec.exponent)).astype(dtype)
    down = np.ldexp(1.0, -np.asarray(spec.exponent)).astype(dtype)
    name, t = node.name, DType(dtype)
    x = e.tensor(node.inputs[0], dtype)
    if spec.rounding == Rounding.DOUBLE:
        x = _with_even_codes(e, node, x, dtype)
    rounding = rounding_of_numbers(spec.rounding)
    x = e.builder.add("Mul", f"{name}/scale", [x, factor(e, name, up)], T=t)
    x = _round(e, name, x, rounding, dtype)
    if rounding == Rounding.FLOOR and e.exponents.get(node.inputs[0]) is None:
        x = _floor_below_zero(e, node, x, dtype)
    if spec.overflow == Overflow.WRAP:
        low, span = e.builder.scalar(spec.lo, dtype), e.builder.scalar(1 << spec.bits, dtype)
        if _passes_shift(e, node):
            end = float(1 << 62)
            for op, to in (("Minimum", end), ("Maximum", -end)):
                held_to = [x, e.builder.scalar(to, dtype)]
                x = e.builder.add(op, f"{name}/{op.lower()}", held_to, T=t)
        # Whole turns first, because a subtraction beyond 2^53 is not exact.
        x = e.builder.add("FloorMod", f"{name}/turns", [x, span], T=t)
        x = e.builder.add("Sub", f"{name}/from_low", [x, low], T=t)
        x = e.builder.add("FloorMod", f"{name}/wrap", [x, span], T=t)
        x = e.builder.add("AddV2", f"{name}/to_low", [x, low], T=t)
    else:
        x = e.builder.add(
            "Minimum", f"{name}/clip_high", [x, e.builder.scalar(spec.hi, dtype)], T=t
        )
        x = e.builder.add("Maximum", f"{name}/clip_low", [x, e.builder.scalar(spec.lo, dtype)], T=t)
    if dtype == held:
        return e.builder.add("Mul", name, [x, factor(e, name, down)], T=t)
    x = e.builder.add("Mul", f"{name}/unscale", [x, factor(e, name, down)], T=t)
    return e.builder.add("Cast", name, [x], SrcT=t, DstT=DType(held))


def _passes_shift(e: Emission, node: Node) -> bool:
    """Whether a left shift of codes may exceed 2^62, the limit of all forms."""
    source, bound = e.exponents.get(node.inputs[0]), e.bounds.get(node.inputs[0])
    if source is None or bound is None:
        return False
    left = int(np.max(np.asarray(spec_of(node).exponent) - np.asarray(source)))
    return left > 0 and bound.magnitude << left > 1 << 62


def _with_even_codes(e: Emission, node: Node, x: str, dtype: str) -> str:
    """x with odd codes increased by one step, if bits are dropped: the first step of `double`.

    A float that is not on a grid does not change.
    """
    exponent = e.exponents.get(node.inputs[0])
    if exponent is None:
        return x
    drops = np.asarray(exponent) > np.asarray(spec_of(node).exponent)
    if not drops.any():
        return x
    unit = np.ldexp(1.0, np.asarray(exponent))
    half = np.where(drops, 0.5, 1.0)

    def scaled(x: str, by: Array, what: str) -> str:
        numbers = factor(e, f"{node.name}/{what}", np.asarray(by).astype(dtype))
        return e.builder.add("Mul", f"{node.name}/{what}", [x, numbers], T=DType(dtype))

    x = scaled(scaled(x, unit, "codes"), half, "halves")
    x = e.builder.add("Ceil", f"{node.name}/halves_up", [x], T=DType(dtype))
    return scaled(scaled(x, 1 / half, "even_codes"), 1 / unit, "even")


def _round(e: Emission, name: str, x: str, rounding: str, dtype: str) -> str:
    t = DType(dtype)
    match Rounding(rounding):
        case Rounding.HALF_EVEN:
            return e.builder.add("Round", f"{name}/round", [x], T=t)
        case Rounding.FLOOR:
            return e.builder.add("Floor", f"{name}/round", [x], T=t)
        case Rounding.HALF_UP:
            return _half_up(e, name, x, dtype)
        case Rounding.HALF_AWAY | Rounding.DOUBLE:
            sign = e.builder.add("Sign", f"{name}/sign", [x], T=t)
            size = _half_up(e, name, e.builder.add("Abs", f"{name}/abs", [x], T=t), dtype)
            return e.builder.add("Mul", f"{name}/signed", [size, sign], T=t)


def _floor_below_zero(e: Emission, node: Node, whole: str, dtype: str) -> str:
    """The floor of a float, at most -1 for every number below 0.

    TensorFlow's threads take subnormal numbers for 0, also in comparisons and casts. Their bits
    show the sign.
    """
    name, source = node.name, e.type_name(node.inputs[0])
    integers = {"float32": "int32", "float64": "int64"}[source]
    i, zero = DType(integers), e.builder.scalar(0, integers)
    minus_zero = e.builder.scalar(int(np.iinfo(integers).min), integers)
    bits = e.builder.add(
        "Bitcast", f"{name}/bits", [e.tensor(node.inputs[0])], T=DType(source), type=i
    )
    signed = e.builder.add("Less", f"{name}/sign_bit", [bits, zero], T=i)
    nonzero = e.builder.add("NotEqual", f"{name}/nonzero", [bits, minus_zero], T=i)
    negative = e.builder.add("LogicalAnd", f"{name}/negative", [signed, nonzero])
    t, minus_one = DType(dtype), e.builder.scalar(-1.0, dtype)
    below = e.builder.add("Minimum", f"{name}/below", [whole, minus_one], T=t)
    return e.builder.add("SelectV2", f"{name}/floor", [negative, below, whole], T=t)


def _half_up(e: Emission, name: str, x: str, dtype: str) -> str:
    """floor(x) + (x - floor(x) >= 1/2): `floor(x + 1/2)` is wrong just below a half."""
    t = DType(dtype)
    whole = e.builder.add("Floor", f"{name}/whole", [x], T=t)
    rest = e.builder.add("Sub", f"{name}/rest", [x, whole], T=t)
    up = e.builder.add("GreaterEqual", f"{name}/up", [rest, e.builder.scalar(0.5, dtype)], T=t)
    step = e.builder.add("Cast", f"{name}/step", [up], SrcT=DType("bool"), DstT=t)
    return e.builder.add("AddV2", f"{name}/round", [whole, step], T=t)


def _lookup(e: Emission, node: Node) -> str:
    attrs, exponent = node.typed(TableAttrs), scalar_exponent(e.exponents, node.inputs[0])
    dtype = e.type_name(node.inputs[0])
    values = dequantize(Fixed(table(attrs, exponent), attrs.exponent)).astype(np.float32)
    entries = e.builder.shared(values, f"{node.name}/table")
    scale = e.builder.scalar(float(np.ldexp(1.0, exponent)), dtype)
    code = e.builder.add(
        "Mul", f"{node.name}/code", [e.tensor(node.inputs[0]), scale], T=DType(dtype)
    )
    index = e.builder.add(
        "Cast", f"{node.name}/as_index", [code], SrcT=DType(dtype), DstT=DType("int32")
    )
    low = e.builder.scalar(attrs.domain.lo, "int32")
    index = e.builder.add("Sub", f"{node.name}/index", [index, low], T=DType("int32"))
    return e.builder.add(
        "GatherV2", node.name, [entries, index, e.builder.scalar(0, "int32")],
        Tparams=DType("float32"), Tindices=DType("int32"), Taxis=DType("int32"), batch_dims=0,
    )  # fmt: skip


QUANTIZERS: Mapping[str, Lower] = {
    "quantize": _quantize,
    "lookup": _lookup,
}
