"""One exponent for a scale group, chosen for all of its members at once.

The sweep of calibration meets members one after the other, and what it has run by then cannot
be run anew for a member met late. So the float network is run before it, twice, chunk by chunk:
once for the ranges of the members, once for their errors at each exponent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from qgraph.interpret import needed_for
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array, QuantSpec
from qgraph.numerics import exponent_for_max
from qgraph.parallel import Each
from qgraph.quant.output_error import (
    FINER_BY_OUTPUT,
    ITSELF,
    Constant,
    candidates_from,
    consumers_of,
    cost,
    errors,
    run_unquantized,
)
from qgraph.quant.thresholds import FINER_EXPONENTS, range_of
from qgraph.quant.topology import QUANTIZERS

# The methods of `qgraph.quant.thresholds` whose costs add up over members, and their reach.
FINER = {"mse": FINER_EXPONENTS, "output": FINER_BY_OUTPUT}

Range = tuple[float, float]


def joint_exponents(
    graph: Graph,
    chunks: Mapping[str, Sequence[Array]],
    method: str,
    constant: Constant,
    settle_sign: Callable[[Node, Range], QuantSpec],
    each: Each,
) -> dict[str, int]:
    """The exponent of each scale group with activations, by the least summed error of `method`.

    chunks: the inputs. `settle_sign(node, range)` gives the spec that a member will have.
    """
    members = [
        node
        for node in graph.topological()
        if node.op in QUANTIZERS
        and node.attrs["spec"].group
        and node.attrs["spec"].role in ("activation", "input")
        and node.attrs["spec"].exponent is None
        and constant(node.inputs[0]) is None
    ]
    if not members:
        return {}
    order = needed_for(graph, [m.name for m in members])
    names = {m.name for m in members}

    def feeds(i: int) -> dict[str, Array]:
        return {name: arrays[i] for name, arrays in chunks.items()}

    def over_members(function: Callable[[str, Array], Any]) -> Iterator[list[Any]]:
        """For each member, `function` of its name and value over all chunks."""

        def at(i: int) -> dict[str, Any]:
            passing = _values_of(order, names, feeds(i), constant)
            return {name: function(name, x) for name, x in passing}

        parts = [*each(at, range(len(next(iter(chunks.values())))))]
        return ([part[m.name] for part in parts] for m in members)

    ranges = {
        member.name: _joined(found, member.name)
        for member, found in zip(
            members,
            over_members(lambda name, x: range_of([x], name) if x.size else None),
            strict=True,
        )
    }
    specs = {m.name: settle_sign(m, ranges[m.name]) for m in members}
    candidates = {
        group: _candidates(
            [(specs[m.name], ranges[m.name]) for m in members if specs[m.name].group == group],
            FINER[method],
        )
        for group in {str(spec.group) for spec in specs.values()}
    }
    consumers = {
        m.name: consumers_of(graph, m.name, constant) if method == "output" else [ITSELF]
        for m in members
    }
    found = over_members(
        lambda name, x: errors(x, specs[name], candidates[str(specs[name].group)], consumers[name])
    )
    totals: dict[str, list[Any]] = {}
    for member, parts in zip(members, found, strict=True):
        totals.setdefault(str(specs[member.name].group), []).append(sum(parts[1:], parts[0]))
    return {group: candidates[group][int(np.argmin(cost(t)))] for group, t in totals.items()}


def _joined(ranges: Sequence[Range | None], name: str) -> Range:
    known = [r for r in ranges if r is not None]
    return (min(r[0] for r in known), max(r[1] for r in known)) if known else range_of([], name)


def _candidates(members: Sequence[tuple[QuantSpec, Range]], finer: int) -> Sequence[int]:
    """From the exponent that clips no member to finer ones; all-zero members have no say."""
    peaks = [(spec, max(-low, high)) for spec, (low, high) in members]
    heard = [(spec, peak) for spec, peak in peaks if peak] or [(spec, 1.0) for spec, _ in peaks]
    coarsest = min(exponent_for_max(peak, spec.bits, spec.signed) for spec, peak in heard)
    return candidates_from(coarsest, finer)


def _values_of(
    order: Sequence[Node], names: set[str], feeds: Mapping[str, Array], constant: Constant
) -> Iterator[tuple[str, Array]]:
    """Run the float network, and give what is called `names` as it is met."""
    left = Counter(v for node in order for v in node.inputs)
    values: dict[str, Array] = {}
    for node in order:
        if node.op == "input":
            values[node.name] = feeds[node.name]
        elif node.op == "const":
            values[node.name] = node.attrs["value"]
        else:
            result = run_unquantized(node, [values[v] for v in node.inputs])
            values.update(zip(node.values, result if node.outputs > 1 else (result,), strict=True))
        if node.name in names:
            yield node.name, values[node.name]
        for value in node.inputs:
            left[value] -= 1
            if not left[value]:
                values.pop(value, None)
