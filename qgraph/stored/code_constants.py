"""Constants that an output directory stores as codes only, in `tensors.npz`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of, value_of
from qgraph.ir.types import Array, Codes, Fixed
from qgraph.numerics import dequantize, quantized_constant
from qgraph.stored.manifest import TensorEntry

FEW_ELEMENTS = 128  # a constant with fewer is stored as it is
MOST_BITS = 24  # of codes whose values are exact in float32


def on_grid(graph: Graph) -> tuple[Graph, frozenset[str]]:
    """A graph whose large constants have the values of their codes, and the names of these.

    Only quantizers with one scale use such a constant, so every integer stays the same.
    """
    changed = {name: quantizers[0] for name, quantizers in _only_quantized(graph)}
    made = graph.copy()
    for name, quantizer in changed.items():
        value = quantized_constant(value_of(graph.nodes[name]), spec_of(graph.nodes[quantizer]))
        made.set_attrs(name, value=value)
    return made, frozenset(changed)


def _only_quantized(graph: Graph) -> Iterator[tuple[str, list[str]]]:
    """Large float32 constants with the quantizers that are their only users, all with one scale."""
    for node in graph.topological():
        users = graph.users(node.name) if node.op == "const" else ()
        if not users or any(user.op != "quantize" for user in users) or graph.is_output(node.name):
            continue
        value, specs = value_of(node), [spec_of(user) for user in users]
        scales = {(spec.bits, spec.signed, spec.exponent) for spec in specs}
        large = value.size >= FEW_ELEMENTS and value.dtype == np.float32
        fits = specs[0].role.of_constant and specs[0].bits <= MOST_BITS
        if large and fits and len(scales) == 1:
            yield node.name, [user.name for user in users]


def coded_constants(
    stored: Container[str], quantizers: Iterable[TensorEntry]
) -> dict[str, TensorEntry]:
    """The quantizers of constants that are not stored, by the name of what they quantize."""
    found: dict[str, TensorEntry] = {}
    for entry in quantizers:
        if entry.role.of_constant and entry.of not in stored:
            found.setdefault(entry.of, entry)
    return found


def from_codes(coded: Mapping[str, TensorEntry], codes: Mapping[str, Array]) -> dict[str, Array]:
    """The values of constants whose quantizers have these codes."""
    return {
        name: dequantize(Fixed(codes[entry.name].astype(np.int64), _exponent(entry))).astype(
            np.float32
        )
        for name, entry in coded.items()
        if entry.name in codes
    }


def _exponent(entry: TensorEntry) -> int | Codes:
    return entry.exponent if isinstance(entry.exponent, int) else np.asarray(entry.exponent)
