"""States of a network that computes one step of a sequence.

A state is an input that takes, in each step, the value that an output had in the step before.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.errors import UsageError
from qgraph.ir.graph import Graph
from qgraph.ir.ops.structure import InputAttrs
from qgraph.words import alternatives


def states_of(graph: Graph) -> Mapping[str, str]:
    """The states: for the name of each input, the public name of the output that it follows."""
    found = {name: graph.nodes[name].typed(InputAttrs).state for name in graph.inputs}
    return MappingProxyType({name: output for name, output in found.items() if output is not None})


def mark_states(graph: Graph, states: Mapping[str, str]) -> None:
    """Mark inputs of `graph` as states, by the outputs that they follow.

    Raises UsageError for unknown names, and for pairs with different types.
    """
    for name, output in states.items():
        if name not in graph.inputs:
            raise UsageError(
                f"state `{name}={output}`: the network has no input `{name}`",
                hint=f"inputs: {alternatives(graph.inputs)}",
            )
        if output not in graph.outputs:
            raise UsageError(
                f"state `{name}={output}`: the network has no output `{output}`",
                hint=f"outputs: {alternatives([*graph.outputs])}",
            )
        before, after = graph.types[name], graph.types[graph.outputs[output]]
        if not before.accepts(after) and not after.accepts(before):
            raise UsageError(
                f"state `{name}={output}`: the input is {before}, the output is {after}",
                hint="give the output that has the next value of this input",
            )
        if graph.outputs[output] == name:
            raise UsageError(
                f"state `{name}={output}`: the output is the input itself, so the state never "
                "changes",
                hint="leave it out",
            )
        graph.set_attrs(name, state=output)
    if states and len(states) == len(graph.inputs):
        raise UsageError(
            "every input of the network is a state", hint="leave out those that are not"
        )
