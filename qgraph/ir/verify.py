"""The verifier: checks every graph after every pass."""

from __future__ import annotations

from qgraph.errors import GraphError
from qgraph.ir.node import ReadableGraph, node_of
from qgraph.ir.ops.structure import ConstantAttrs
from qgraph.ir.types import Array


def verify(graph: ReadableGraph) -> None:
    """Raise GraphError, naming the node, unless the graph is well formed.

    Checked: names, dangling inputs and outputs, cycles, arity, attributes, dtypes and shapes
    against the op's definition, and the index of users.
    """
    for name, node in graph.nodes.items():
        if name != node.name:
            raise GraphError(f"is filed under another name, `{name}`", node=node.name)
        for value in node.inputs:
            if value not in graph.types or node_of(value) not in graph.nodes:
                raise GraphError(f"input `{value}` does not exist", node=name)
        for needed in node.control:
            if needed not in graph.nodes:
                raise GraphError(f"control input `{needed}` does not exist", node=name)
        if node_of(name) != name:
            raise GraphError("`name:number` names a value, not a node", node=name)
    _check_ends(graph)
    order = graph.order_anew()
    if {*map(id, order)} != {*map(id, graph.topological())}:
        raise GraphError("the recorded order does not match the nodes", node=graph.name)
    for node in order:
        for value, inferred in zip(node.values, graph.infer(node), strict=True):
            if graph.types.get(value) != inferred:
                raise GraphError(
                    f"`{value}` is recorded as {graph.types.get(value)}, its op gives {inferred}",
                    node=node.name,
                )
    _check_users(graph)


def _check_ends(graph: ReadableGraph) -> None:
    inputs = [name for name, node in graph.nodes.items() if node.op == "input"]
    if sorted(inputs) != sorted(graph.inputs):
        raise GraphError(f"inputs are {graph.inputs}, input nodes are {inputs}")
    for public, value in graph.outputs.items():
        if value not in graph.types:
            raise GraphError(f"output `{public}` stands for `{value}`, which does not exist")


def _check_users(graph: ReadableGraph) -> None:
    counted: dict[str, dict[str, int]] = {}
    counted_control: dict[str, dict[str, int]] = {}
    for node in graph.nodes.values():
        for index, needs in ((counted, node.inputs), (counted_control, node.control)):
            for value in needs:
                users = index.setdefault(value, {})
                users[node.name] = users.get(node.name, 0) + 1
    for index, recorded in ((counted, graph._users), (counted_control, graph._control_users)):
        for value in {**index, **recorded}:
            if index.get(value, {}) != recorded.get(value, {}):
                raise GraphError("the index of users does not match the nodes", node=value)


def constants_of(graph: ReadableGraph) -> dict[str, Array]:
    """Every constant by node name, which `parse_graph` needs in addition to the text."""
    return {n.name: n.typed(ConstantAttrs).value for n in graph.nodes.values() if n.op == "const"}
