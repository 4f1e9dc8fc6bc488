"""States of several layers in one tensor [layers, samples, units]: one state for each layer."""

from __future__ import annotations

from qgraph.ir.graph import Graph
from qgraph.ir.node import Node
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.ops.movement import PartAttrs
from qgraph.ir.types import Shape

LAYERED = 3  # axes of such a tensor


def separate_layers(graph: Graph, follows: dict[str, str]) -> None:
    """Replace each state of several layers by one state for each layer, in `graph` and `follows`.

    follows: the output that has the next value of each state, by input. Names that are unknown are
    left to the check of states.
    """
    for name, output in list(follows.items()):
        if name not in graph.inputs or output not in graph.outputs:
            continue
        shape = graph.types[name].shape
        if shape is None or len(shape) != LAYERED or shape[1] != 1 or (shape[0] or 1) < 2:
            continue
        layers = int(shape[0] or 1)
        del follows[name]
        dtype = graph.types[name].dtype
        inputs = [graph.input(graph.fresh(f"{name}_{i}"), dtype, (1, *shape[1:]))
                  for i in range(layers)]  # fmt: skip
        _separate_input(graph, name, inputs)
        values = _separate_output(graph, graph.outputs.pop(output), layers)
        for i, value in enumerate(values):
            graph.outputs[f"{output}_{i}"] = value
            follows[inputs[i]] = f"{output}_{i}"


def _separate_input(graph: Graph, name: str, inputs: list[str]) -> None:
    """Let users of a state take its layers."""
    for user in graph.users(name):
        layer = _layer_of(user, graph.types[name].shape or ())
        if layer is not None:
            graph.replace(Node(user.name, "identity", (inputs[layer],)))
    if graph.is_used(name):
        graph.redirect(name, graph.add("concat", *inputs, attrs={"axis": 0}, name=f"{name}/layers"))
    graph.remove(name)


def _layer_of(node: Node, shape: Shape) -> int | None:
    """The layer that a slice of a state takes; None for other nodes."""
    if node.op != "slice":
        return None
    part = node.typed(PartAttrs)
    axes = zip(shape, part.begin, part.end, part.strides, strict=True)
    taken, *others = [range(size or 1)[slice(b, e, s)] for size, b, e, s in axes]
    whole = all(other == range(size or 1) for other, size in zip(others, shape[1:], strict=True))
    return taken[0] if whole and len(taken) == 1 else None


def _separate_output(graph: Graph, value: str, layers: int) -> list[str]:
    """The layers of the next value of a state."""
    node = graph.producer(value)
    parts = [graph.types[v].shape for v in node.inputs]
    single = len(parts) == layers and all(part is not None and part[0] == 1 for part in parts)
    if node.op == "concat" and node.typed(AxisAttrs).axis == 0 and single:
        return list(node.inputs)
    found = []
    for i in range(layers):
        attrs = {"begin": (i, None, None), "end": (i + 1, None, None), "strides": (1, 1, 1)}
        found.append(graph.add("slice", value, attrs=attrs, name=f"{value}/layer"))
    return found
