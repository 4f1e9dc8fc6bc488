"""Choose one exponent for all members of a scale group together.

The sweep of calibration reaches the members one after the other, and nodes that it has run cannot
be run again for a later member. Therefore the float network is run before it, chunk by chunk, for
the ranges and histograms of the members, and once more if errors of layers count.
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
from qgraph.quant.float_statistics import FloatStatistics
from qgraph.quant.output_error import (
    FINER_BY_OUTPUT,
    Constant,
    consumers_of,
    cost,
    errors,
    run_unquantized,
)
from qgraph.quant.samples.data import chunk_count
from qgraph.quant.thresholds import (
    FINER_EXPONENTS,
    Distribution,
    Range,
    candidates_from,
    squared_error,
)
from qgraph.quant.topology import QUANTIZERS, is_for_sign

# The methods of `qgraph.quant.thresholds` whose costs can be added over members, and their range.
FINER = {CalibrationMethod.MSE: FINER_EXPONENTS, CalibrationMethod.OUTPUT: FINER_BY_OUTPUT}

T = TypeVar("T")


def joint_exponents(
    graph: Graph,
    chunks: Mapping[str, Sequence[Array]],
    method: CalibrationMethod,
    statistics: FloatStatistics,
    constant: Constant,
    settle_sign: Callable[[Node, Range], QuantSpec],
    each: Each,
) -> dict[str, int]:
    """The exponent of each scale group with activations, with the least summed error of `method`.

    Groups whose activations are all zero are left out: they are exact on every scale.
    chunks: the inputs. settle_sign: returns the final spec of a member for its range.
    """
    tensors = {
        n.name: statistics.tensors[n.name]
        for n in members_of(graph)
        if constant(n.inputs[0]) is None
    }
    specs = {name: settle_sign(graph.nodes[name], t.range) for name, t in tensors.items()}
    groups: dict[str, list[str]] = {}
    for name, spec in specs.items():
        if tensors[name].range != (0, 0):
            groups.setdefault(str(spec.group), []).append(name)
    candidates = {
        group: _candidates([(specs[n], tensors[n].range) for n in names], FINER[method])
        for group, names in groups.items()
    }
    if method == CalibrationMethod.OUTPUT:
        costs = _by_output(graph, chunks, specs, groups, candidates, constant, each)
    else:
        costs = {
            group: [sum(_squared_error(tensors[n], specs[n], e) for n in names) for e in exponents]
            for (group, names), exponents in zip(groups.items(), candidates.values(), strict=True)
        }
    return {group: candidates[group][int(np.argmin(costs[group]))] for group in groups}


def members_of(graph: Graph) -> list[Node]:
    """Quantizers of activations in scale groups, without exponents.

    The sweep handles wide stages and constants, which are never clipped, and codes of which only
    the sign is used.
    """
    return [n for n in graph.topological() if _is_member(graph, n)]


def _is_member(graph: Graph, node: Node) -> bool:
    spec = spec_of(node) if node.op in QUANTIZERS else None
    if spec is None or spec.group is None or spec.exponent is not None:
        return False
    return spec.role in (Role.ACTIVATION, Role.INPUT) and not is_for_sign(graph, node)


def _squared_error(tensor: Distribution, spec: QuantSpec, exponent: int) -> float:
    assert tensor.histogram is not None
    return squared_error(tensor.histogram, spec, exponent)


def _by_output(
    graph: Graph,
    chunks: Mapping[str, Sequence[Array]],
    specs: Mapping[str, QuantSpec],
    groups: Mapping[str, Sequence[str]],
    candidates: Mapping[str, Sequence[int]],
    constant: Constant,
    each: Each,
) -> dict[str, Sequence[float]]:
    """The costs of the candidates of each group, by the errors of later layers."""
    if not groups:
        return {}
    run = _FloatRun(graph, [name for names in groups.values() for name in names], chunks, each)
    consumers = {name: consumers_of(graph, name, constant) for name in specs}
    found = run(
        lambda name, x: errors(x, specs[name], candidates[str(specs[name].group)], consumers[name])
    )
    totals = {name: sum(parts[1:], parts[0]) for name, parts in found.items()}
    return {group: [*cost([totals[n] for n in names])] for group, names in groups.items()}


def _candidates(members: Sequence[tuple[QuantSpec, Range]], finer: int) -> Sequence[int]:
    """The exponent that clips no member, and finer ones."""
    coarsest = min(
        exponent_for_max(max(-low, high), spec.bits, spec.signed) for spec, (low, high) in members
    )
    return candidates_from(coarsest, finer)


class _FloatRun:
    """Runs the float network chunk by chunk, with memory for one chunk only."""

    def __init__(
        self, graph: Graph, names: Sequence[str], chunks: Mapping[str, Sequence[Array]], each: Each
    ) -> None:
        self.order = needed_for(graph, names)
        self.names = names
        self.chunks = chunks
        self.each = each

    def __call__(self, function: Callable[[str, Array], T]) -> dict[str, list[T]]:
        """Apply `function` to each name and its value, chunk by chunk."""
        count = chunk_count(self.chunks)
        parts = [
            *self.each(lambda i: {n: function(n, x) for n, x in self._values(i)}, range(count))
        ]
        return {name: [part[name] for part in parts] for name in self.names}

    def _values(self, chunk: int) -> Iterator[tuple[str, Array]]:
        """Values of the names, each when it is computed."""
        values = {n.name: value_of(n) for n in self.order if n.op == "const"}
        values |= {name: chunks[chunk] for name, chunks in self.chunks.items()}
        nodes = [n for n in self.order if n.name not in values]
        for node in run_nodes(nodes, values, run=run_unquantized):
            if node.name in self.names:
                yield node.name, values[node.name]
