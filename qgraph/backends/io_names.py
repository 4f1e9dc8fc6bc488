"""Names of a written graph's inputs and outputs: those of the user, if the target allows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qgraph.backends.network_forms import Network
from qgraph.ir.graph import Graph
from qgraph.names import Namespace, Spelling


@dataclass(frozen=True)
class IONames:
    """The names of inputs and public outputs in a written graph, by the user's names."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    @property
    def taken(self) -> set[str]:
        return {*self.inputs.values(), *self.outputs.values()}

    @property
    def changed(self) -> dict[str, dict[str, str]]:
        """Names that the target does not allow, or that an input and an output share."""
        both = {"inputs": self.inputs, "outputs": self.outputs}
        return {
            kind: {own: node for own, node in ends.items() if own != node}
            for kind, ends in both.items()
        }


def io_names_of(graph: Graph, spelling: Spelling) -> IONames:
    """The names of a graph's inputs and outputs in a target that spells names so.

    An output that has the name of an input keeps it only if it is that input.
    """
    names = Namespace(spelling)
    same = {name for name in graph.inputs if graph.outputs.get(name) == name}
    others = [name for name in graph.outputs if name not in graph.inputs]
    found = names.fresh_all([*graph.inputs, *others])
    return IONames(
        {name: found[name] for name in graph.inputs},
        {
            name: found[name] if name in same or name in others else names.fresh(name)
            for name in graph.outputs
        },
    )


def is_program_alone(network: Network) -> bool:
    """Whether inputs and outputs of the network are those of its program, one for one."""
    graph, program = network.graph, network.program
    sources = sorted(entry.source for entry in program.entries)
    values = sorted(graph.outputs.values())
    alone = sources == sorted(graph.inputs) and values == sorted(program.exits)
    return alone or not graph.outputs


def left_to_the_host(outputs: Iterable[str], because: str = "") -> str:
    """The warning about a file that lacks the float ops of its network."""
    ends = ", ".join(f"`{name}`" for name in outputs)
    return (
        f"the file contains only the integer part of the network{because}. Its outputs are {ends}; "
        "compute the float ops on the host"
    )
