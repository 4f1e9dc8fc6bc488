"""The verifier: checks every graph after every pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from qgraph.errors import GraphError
from qgraph.ir.node import ReadableGraph, node_of
from qgraph.ir.ops.structure import ConstantAttrs
from qgraph.ir.types import Array

Names = tuple[str, ...]


def verify(graph: ReadableGraph) -> None:
    """Raise GraphError, naming the node, unless the graph is well formed.

    Checked: names, dangling inputs and outputs, cycles, arity, attributes, dtypes and shapes
    against the op's definition, and the index of users.
    """
    for name, node in graph.nodes.items():
        if name != node.name:
            raise GraphError(f"stored under another name, `{name}`", node=node.name)
        for value in node.inputs:
            if value not in graph.types or node_of(value) not in graph.nodes:
                raise GraphError(f"input `{value}` does not exist", node=name)
        for needed in node.control:
            if needed not in graph.nodes:
                raise GraphError(f"control input `{needed}` does not exist", node=name)
        if node_of(name) != name:
            raise GraphError("`name:number` names a value, not a node", node=name)
    _check_ends(graph)
    _check_order(graph)
    for node in graph.topological():
        for value, inferred in zip(node.values, graph.infer(node), strict=True):
            recorded = graph.types.get(value)
            if recorded is not inferred and recorded != inferred:
                raise GraphError(
                    f"`{value}` is recorded as {recorded}, its op gives {inferred}",
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


def _check_order(graph: ReadableGraph) -> None:
    """Raise GraphError unless each node comes after those it needs, so that no cycle exists."""
    order = graph.topological()
    done: set[str] = set()
    for node in order:
        if not done.issuperset((*map(node_of, node.inputs), *node.control)):
            break
        done.add(node.name)
    if len(done) < len(order) or {*map(id, order)} != {*map(id, graph.nodes.values())}:
        graph.computed_order()  # names the nodes of a cycle
        raise GraphError("the recorded order does not match the nodes", node=graph.name)


def _check_users(graph: ReadableGraph) -> None:
    nodes = graph.nodes.values()
    _check_index(graph._users, {node.name: node.inputs for node in nodes if node.inputs})
    _check_index(graph._control_users, {node.name: node.control for node in nodes if node.control})


def _check_index(index: Mapping[str, Mapping[str, int]], needs: Mapping[str, Names]) -> None:
    """Raise GraphError unless `index` counts the uses in `needs`, and no others."""
    found = 0
    for user, needed in needs.items():
        uses = _counts(needed)
        found += len(uses)
        for value, count in uses.items():
            if value not in index or index[value].get(user) != count:
                raise _stale_users(value)
    if found < sum(map(len, index.values())):
        pairs = ((value, user) for value, users in index.items() for user in users)
        raise _stale_users(next(value for value, user in pairs if value not in needs.get(user, ())))


def _counts(names: Names) -> Mapping[str, int]:
    """How often each name occurs."""
    each_once = dict.fromkeys(names, 1)
    return each_once if len(each_once) == len(names) else Counter(names)


def _stale_users(value: str) -> GraphError:
    return GraphError("the index of users does not match the nodes", node=value)


def constants_of(graph: ReadableGraph) -> dict[str, Array]:
    """Every constant by node name, which `parse_graph` needs in addition to the text."""
    return {n.name: n.typed(ConstantAttrs).value for n in graph.nodes.values() if n.op == "const"}
