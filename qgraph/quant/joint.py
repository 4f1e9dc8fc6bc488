"""One exponent for a scale group, chosen for all of its members at once.

The sweep of calibration meets members one after the other, and what it has run by then cannot
be run again for a member met late. So the float network is run before it, twice, chunk by chunk:
once for the ranges of the members, once for their errors at each exponent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from qgraph.choices import CalibrationMethod
from qgraph.interpret import needed_for, run_nodes
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of, value_of
from qgraph.ir.types import Array, QuantSpec, Role
from qgraph.numerics import exponent_for_max
from qgraph.parallel import Each
from qgraph.quant.output_error import (
    FINER_BY_OUTPUT,
    ITSELF,
    Constant,
    consumers_of,
    cost,
    errors,
    run_unquantized,
)
from qgraph.quant.thresholds import FINER_EXPONENTS, candidates_from, range_of
from qgraph.quant.topology import QUANTIZERS

# The methods of `qgraph.quant.thresholds` whose costs add up over members, and their reach.
FINER = {CalibrationMethod.MSE: FINER_EXPONENTS, CalibrationMethod.OUTPUT: FINER_BY_OUTPUT}

Range = tuple[float, float]

T = TypeVar("T")


def joint_exponents(
    graph: Graph,
    chunks: Mapping[str, Sequence[Array]],
    method: CalibrationMethod,
    constant: Constant,
    settle_sign: Callable[[Node, Range], QuantSpec],
    each: Each,
) -> dict[str, int]:
    """The exponent of each scale group with activations, by the least summed error of `method`.

    Groups whose activations are all zero are left out: any scale holds them.

    chunks: the inputs. `settle_sign(node, range)` gives the spec that a member will have.
    """
    members = [n for n in graph.topological() if _is_member(n) and constant(n.inputs[0]) is None]
    if not members:
        return {}
    run = _FloatRun(graph, [m.name for m in members], chunks, each)
    ends = run(lambda name, x: range_of([x], name) if x.size else None)
    ranges = {m.name: _joined(ends[m.name], m.name) for m in members}
    specs = {m.name: settle_sign(m, ranges[m.name]) for m in members}
    groups: dict[str, list[str]] = {}
    for name, spec in specs.items():
        if ranges[name] != (0, 0):
            groups.setdefault(str(spec.group), []).append(name)
    if not groups:
        return {}
    run = _FloatRun(graph, [name for names in groups.values() for name in names], chunks, each)
    candidates = {
        group: _candidates([(specs[n], ranges[n]) for n in names], FINER[method])
        for group, names in groups.items()
    }
    by_output = method == CalibrationMethod.OUTPUT
    consumers = {
        name: consumers_of(graph, name, constant) if by_output else [ITSELF] for name in specs
    }
    found = run(
        lambda name, x: errors(x, specs[name], candidates[str(specs[name].group)], consumers[name])
    )
    totals = {name: sum(parts[1:], parts[0]) for name, parts in found.items()}
    return {
        group: candidates[group][int(np.argmin(cost([totals[n] for n in names])))]
        for group, names in groups.items()
    }


def _is_member(node: Node) -> bool:
    """Wide stages and constants are never clipped, and have their say in the sweep."""
    spec = spec_of(node) if node.op in QUANTIZERS else None
    return bool(
        spec and spec.group and spec.role in (Role.ACTIVATION, Role.INPUT) and spec.exponent is None
    )


def _joined(ranges: Sequence[Range | None], name: str) -> Range:
    known = [r for r in ranges if r is not None]
    return (min(r[0] for r in known), max(r[1] for r in known)) if known else range_of([], name)


def _candidates(members: Sequence[tuple[QuantSpec, Range]], finer: int) -> Sequence[int]:
    """From the exponent that clips no member to finer ones."""
    coarsest = min(
        exponent_for_max(max(-low, high), spec.bits, spec.signed) for spec, (low, high) in members
    )
    return candidates_from(coarsest, finer)


class _FloatRun:
    """The float network on one chunk after the other: no more is held than one chunk needs."""

    def __init__(
        self, graph: Graph, names: Sequence[str], chunks: Mapping[str, Sequence[Array]], each: Each
    ) -> None:
        self.order = needed_for(graph, names)
        self.names = names
        self.chunks = chunks
        self.each = each

    def __call__(self, function: Callable[[str, Array], T]) -> dict[str, list[T]]:
        """Apply `function` to each name and its value, chunk by chunk."""
        count = len(next(iter(self.chunks.values())))
        parts = [
            *self.each(lambda i: {n: function(n, x) for n, x in self._values(i)}, range(count))
        ]
        return {name: [part[name] for part in parts] for name in self.names}

    def _values(self, chunk: int) -> Iterator[tuple[str, Array]]:
        """Values of the names, each as it is met."""
        values = {n.name: value_of(n) for n in self.order if n.op == "const"}
        values |= {name: chunks[chunk] for name, chunks in self.chunks.items()}
        nodes = [n for n in self.order if n.name not in values]
        for node in run_nodes(nodes, values, run=run_unquantized):
            if node.name in self.names:
                yield node.name, values[node.name]
