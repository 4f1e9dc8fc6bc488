"""Control flow: the branch of an `If` that is taken; the steps of a `Loop` or `Scan`, written out.

Conditions and the number of steps are known from constants and shapes when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError, UnsupportedError
from qgraph.foreign import OnnxObject
from qgraph.frontends.limits import MAX_LOOP_NODES, MAX_STEPS
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.ir.types import Array

HINT = "give input shapes (--input-shape), or export the model with its control flow resolved"


def _if(site: OnnxSite) -> Result:
    verdict = _known(site, site.inputs[0])
    if verdict is None or verdict.size != 1:
        raise _refusal(site, "the condition of this `If` depends on the input")
    key = "then_branch" if bool(verdict.reshape(())) else "else_branch"
    site.without_effect("then_branch", "else_branch")
    return tuple(site.builder.call(site.node, _body(site, key), key, ()))


def _loop(site: OnnxSite) -> Result:
    """The body for each step, as long as the condition holds."""
    builder, body = site.builder, _body(site, "body")
    most, holds = _trips(site), not site.has(1) or _holds(site, site.inputs[1])
    state, before = list(site.inputs[2:]), len(builder.graph.nodes)
    rows: list[Sequence[str]] = []
    while holds and (most is None or len(rows) < most):
        step = len(rows)
        if step >= MAX_STEPS or len(builder.graph.nodes) - before > MAX_LOOP_NODES:
            raise _refusal(site, f"this `Loop` has more than {MAX_STEPS} steps or too many ops")
        place = site.const(np.asarray(step, np.int64), f"step{step}/number")
        true = site.const(np.asarray(True), f"step{step}/true")
        found = builder.call(site.node, body, f"step{step}", (place, true, *state))
        if len(found) < 1 + len(state):
            raise GraphError("the body of this `Loop` has too few outputs", node=site.name)
        holds = _holds(site, found[0])
        state, scanned = found[1 : 1 + len(state)], found[1 + len(state) :]
        rows.append(scanned)
    scans = site.node.outputs[len(state) :]
    if any(scans) and not rows:
        raise _refusal(site, "this `Loop` has no steps, and results of steps are used")
    made = (_stacked(site, [row[i] for row in rows], i) if n else "" for i, n in enumerate(scans))
    return (*state, *made)


def _scan(site: OnnxSite) -> Result:
    """The body for each part of the scanned inputs along an axis of each."""
    node, builder, body = site.node, site.builder, _body(site, "body")
    count = node.integer("num_scan_inputs")
    if node.version < 9 or not 0 < count <= len(site.inputs):
        return None  # the form of opset 8 has a batch
    first = len(site.inputs) - count
    state, scans = list(site.inputs[:first]), range(first, len(site.inputs))
    axes = _for_each(site, "scan_input_axes", count)
    axes = tuple(site.axis(a, site.rank(i)) for a, i in zip(axes, scans, strict=True))
    turned, before = _for_each(site, "scan_input_directions", count), len(builder.graph.nodes)
    lengths = {site.known_shape(i)[a] for i, a in zip(scans, axes, strict=True)}
    steps = lengths.pop()
    if lengths or not steps or steps > MAX_STEPS:
        raise _refusal(site, f"this `Scan` needs one known number of steps, at most {MAX_STEPS}")
    rows: list[Sequence[str]] = []
    for step in range(steps):
        if len(builder.graph.nodes) - before > MAX_LOOP_NODES:
            raise _refusal(site, "this `Scan` has too many ops")
        parts = [
            _part(site, i, axis, steps - 1 - step if back else step)
            for i, axis, back in zip(scans, axes, turned, strict=True)
        ]
        found = builder.call(node, body, f"step{step}", (*state, *parts))
        state, scanned = found[:first], found[first:]
        rows.append(scanned)
    results = len(rows[0])
    if len(state) < first or len(node.outputs) > first + results:
        raise GraphError("the body of this `Scan` has too few outputs", node=site.name)
    out, back = (_for_each(site, f"scan_output_{key}", results) for key in ("axes", "directions"))
    made = [
        _stacked(site, [row[i] for row in (rows[::-1] if back[i] else rows)], i, out[i])
        if i + first < len(node.outputs) and node.outputs[i + first]
        else ""
        for i in range(results)
    ]
    return (*state, *made)


def _for_each(site: OnnxSite, key: str, count: int) -> tuple[int, ...]:
    """An attribute of each scanned tensor; 0 for each without it."""
    values = site.node.integers(key) or (0,) * count
    if len(values) != count:
        raise GraphError(f"{key} {values} for {count} tensors", node=site.name)
    return values


def _part(site: OnnxSite, i: int, axis: int, place: int) -> str:
    """Input `i` at one place of an axis, without the axis."""
    rank, end = site.rank(i), place + 1
    attrs = {
        "begin": tuple(place if a == axis else None for a in range(rank)),
        "end": tuple(end if a == axis else None for a in range(rank)),
        "strides": (1,) * rank,
    }
    one = site.helper(f"scanned{i}", "slice", site.inputs[i], **attrs)
    return site.helper(f"part{i}", "squeeze", one, axes=(axis,))


def _stacked(site: OnnxSite, values: Sequence[str], place: int, axis: int = 0) -> str:
    """The results of all steps, along a new axis."""
    rank = (site.builder.graph.types[values[0]].rank or 0) + 1
    axis = site.axis(axis, rank) if axis else 0
    parts = [site.helper(f"row{place}", "expand_dims", value, axis=axis) for value in values]
    return parts[0] if len(parts) == 1 else site.helper(f"rows{place}", "concat", *parts, axis=axis)


def _trips(site: OnnxSite) -> int | None:
    if not site.has(0):
        return None
    found = _known(site, site.inputs[0])
    if found is None or found.size != 1:
        raise _refusal(site, "the number of steps of this `Loop` depends on the input")
    return int(found.reshape(()))


def _holds(site: OnnxSite, value: str) -> bool:
    found = _known(site, value)
    if found is None or found.size != 1:
        raise _refusal(site, "the condition of this `Loop` depends on the input")
    return bool(found.reshape(()))


def _known(site: OnnxSite, value: str) -> Array | None:
    partial = site.builder.partials.get(value)
    if partial is not None and partial.complete:
        return partial.values
    return site.builder.constant(value)


def _body(site: OnnxSite, key: str) -> OnnxObject:
    graph = site.node.attrs.get(key)
    if not hasattr(graph, "nodes"):
        raise GraphError(f"`{site.node.op}` has no graph `{key}`", node=site.name)
    return graph


def _refusal(site: OnnxSite, reason: str) -> UnsupportedError:
    return UnsupportedError(f"{reason}, not supported", node=site.name, hint=HINT)


IMPORTERS: Mapping[str, Importer] = MappingProxyType({"If": _if, "Loop": _loop, "Scan": _scan})
