"""The ends of states (`qgraph.ir.states`) in fixed point: both have one format and one scale."""

from __future__ import annotations

from dataclasses import replace

from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.reading import spec_of
from qgraph.ir.states import states_of
from qgraph.quant.topology import SIGNED_ACTIVATIONS, is_joined, sources


def has_fixed_sign(graph: Graph, quantizer: str) -> bool:
    """Whether the codes of an input are signed or not whatever the calibration data."""
    if SIGNED_ACTIVATIONS in graph.facts or is_joined(graph, quantizer):
        return True
    return state_before(graph, quantizer) is not None


def state_before(graph: Graph, value: str) -> str | None:
    """The state from which a quantizer and moves lead to `value`; None if there is none."""
    node = graph.producer(value)
    while node.op == "quantize" or (op_definition(node.op).moves and len(node.inputs) == 1):
        node = graph.producer(node.inputs[0])
    return node.name if node.name in states_of(graph) else None


def users_through_moves(graph: Graph, value: str) -> list[Node]:
    """The users of `value` and of what moves make of it, without the moves of one tensor."""
    found: list[Node] = []
    for user in graph.users(value):
        if op_definition(user.op).moves and len(user.inputs) == 1:
            found += [each for moved in user.values for each in users_through_moves(graph, moved)]
        else:
            found.append(user)
    return found


def moves_before(graph: Graph, value: str) -> list[str]:
    """Names of the moves and concatenations that lead to `value`."""
    found, waiting = dict[str, None](), [value]
    while waiting:
        node = graph.producer(waiting.pop())
        if op_definition(node.op).moves and node.name not in found:
            found[node.name] = None
            waiting += node.inputs
    return [*found]


def ends_of(graph: Graph, state: str) -> tuple[list[str], list[str]]:
    """Names of the quantizers of a state where it enters the step, and where it leaves it.

    Raises UnsupportedError for a state that leaves the step in float.
    """
    output = states_of(graph)[state]
    leaving = sources(graph, graph.outputs[output])
    if not leaving:
        raise UnsupportedError(
            f"the next value of state `{state}`, output `{output}`, is computed in float: a state "
            "of a fixed-point network has codes at both ends",
            node=graph.outputs[output],
            hint="`qgraph inspect` shows the ops that stay float",
        )
    entering = [u.name for u in users_through_moves(graph, state) if u.op == "quantize"]
    return entering, leaving


def unite_formats(graph: Graph) -> None:
    """Give each state the same bits and sign where it enters the step and where it leaves it.

    Those that leave it decide; of several, the widest. Raises UnsupportedError for a state that
    leaves the step in float.
    """
    for state in states_of(graph):
        entering, leaving = ends_of(graph, state)
        specs = [spec_of(graph.nodes[name]) for name in leaving]
        bits, signed = max(s.bits for s in specs), any(s.signed for s in specs)
        for name in (*entering, *leaving):
            spec = spec_of(graph.nodes[name])
            if (spec.bits, spec.signed) != (bits, signed):
                graph.set_attrs(name, spec=replace(spec, bits=bits, signed=signed))
