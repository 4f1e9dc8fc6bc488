"""Grids of an already quantized model: scales that are powers of two, and codes that begin at 0.

A quantizer with such a grid stays in the graph as a `quantize` with its exponent. A layer is marked
with the grid of its weights (`MarkedAttrs.grid`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from qgraph.foreign import AttrValue
from qgraph.ir.graph import Graph
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.types import Array, QuantSpec, Role

DOMAIN, QUANTIZED = "qgraph.grids", "Quantized"  # the op in whose form a reader gives a quantizer
MAX_EXPONENT = 126
ACTIVATION_BITS = (8, 16)
# Ops of ONNX and of TensorFlow whose constant has a scale of its own; others are layers.
ELEMENTWISE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("Add", "AddV2"), ("add",)),
        "Sub": ("add", "sub"),
        "Mul": ("mul",),
        **dict.fromkeys(("Div", "RealDiv"), ("mul", "div")),
    }
)


@dataclass(frozen=True)
class Grid:
    """`exponents` has one entry, or one for each channel; codes have `bits` and a sign or none."""

    exponents: tuple[int, ...]
    bits: int
    signed: bool

    def spec(self, role: Role) -> QuantSpec:
        """As a quantizer's spec; equal exponents of all channels are one."""
        same = len(set(self.exponents)) == 1
        exponent = self.exponents[0] if same else self.exponents
        return QuantSpec(self.bits, self.signed, role, exponent, per_channel=not same)

    def attributes(self) -> Mapping[str, int]:
        """As the attributes of a node of a file."""
        return {"bits": self.bits, "signed": int(self.signed), "exponent": self.exponents[0]}


def grid_of(
    scale: Array | None, zero: Array | None, dtype: np.dtype[np.integer[Any]]
) -> Grid | None:
    """The grid of codes of an integer `dtype`; None if qgraph's quantizers cannot have it.

    zero: None stands for 0. A zero point at the lowest code makes codes unsigned, one in the middle
    of unsigned codes makes them signed.
    """
    if scale is None or scale.size == 0 or dtype.kind not in "iu":
        return None
    parts, exponents = np.frexp(scale.astype(np.float64).reshape(-1))
    if not np.all(parts == 0.5) or np.abs(exponents - 1).max() > MAX_EXPONENT:
        return None
    about = np.iinfo(dtype)
    zeros = {0} if zero is None else {int(z) for z in zero.reshape(-1)}
    middle = 0 if about.min else (about.max + 1) // 2
    if zeros not in ({about.min}, {middle}):
        return None
    return Grid(tuple(int(1 - e) for e in exponents), about.bits, zeros == {middle})


def mark(graph: Graph, kind: str, names: Iterable[str], grid: Grid) -> None:
    """Mark what an op `kind` of a file was imported as, among `names`, with the grid of its
    constant.
    """
    ops = ELEMENTWISE.get(kind, COMPUTE)
    for name in names:
        node = graph.nodes.get(name)
        if node is None or node.op not in ops:
            continue
        if any(graph.producer(value).op == "const" for value in node.inputs):
            attrs: dict[str, object] = {**node.attrs, "grid": grid.spec(Role.WEIGHT)}
            graph.set_attrs(name, **attrs)


def spec_of_attributes(attrs: Mapping[str, AttrValue]) -> QuantSpec:
    """The spec that `Grid.attributes` describes."""
    bits, signed, exponent = (int(attrs[key]) for key in ("bits", "signed", "exponent"))
    return QuantSpec(bits, bool(signed), Role.ACTIVATION, exponent)


@dataclass(frozen=True)
class ScalesOfFile:
    """Counts for the note to the user: scales, and quantizers of activations."""

    scales: int
    with_grid: int
    left_out: int
    keeps: bool  # whether scales with a grid stay as they are

    def notes(self) -> tuple[str, ...]:
        """A note on the scales that stay; empty for a file without any."""
        if not self.scales and not self.left_out:
            return ()
        counts = f"{self.with_grid} of {self.scales} scales are powers of two"
        if not self.keeps:
            return (
                "the model is already quantized: its weights were dequantized and "
                f"{self.left_out} quantizers of activations left out; the network is quantized "
                f"again, with powers of two ({counts} in the file)",
            )
        rest = "" if self.with_grid == self.scales else "; the others are chosen again"
        return (f"the model is already quantized: {counts}: kept{rest}",)
