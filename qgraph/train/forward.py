"""A graph as differentiable TensorFlow calls, node by node, with the ops that inference emits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from qgraph.backends.tf.emit import emit_graph_def
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import TensorType

Tensor = Any
# Stands in for an op: called with a node and the tensor of its first input.
Override = Callable[[Node, Tensor], Tensor]


Piece = Callable[..., Sequence[Tensor]]


def piece_of(graph: Graph, node: Node, dtype: str | None = None) -> Piece:
    """`node` alone as a function of its inputs, all of them of `dtype`, if that is given.

    A function and not ops imported in place, which a gradient tape would not see.
    """
    import tensorflow as tf

    alone = Graph(node.name)
    feeds = [f"feed{i}" for i in range(len(node.inputs))]
    for name, value in zip(feeds, node.inputs, strict=True):
        kind: TensorType = graph.types[value]
        alone.input(name, dtype or kind.dtype, kind.shape)
    alone.insert(Node("node", node.op, tuple(feeds), node.attrs, (), node.outputs))
    results = [f"result{i}" for i in range(node.outputs)]
    alone.outputs.update(zip(results, alone.nodes["node"].values, strict=True))
    made = emit_graph_def(alone, {})
    types = [alone.types[name] for name in feeds]
    signature = [tf.TensorSpec(kind.shape, kind.dtype) for kind in types]

    def imported(*inputs: Tensor) -> Any:
        fed = {f"{name}:0": tensor for name, tensor in zip(feeds, inputs, strict=True)}
        return tf.graph_util.import_graph_def(made, fed, [f"{r}:0" for r in results], name="")

    function: Piece = tf.compat.v1.wrap_function(imported, signature)
    return function


class Forward:
    """Runs a graph on tensors; `overrides` by op stand in for its own."""

    def __init__(
        self, graph: Graph, overrides: Mapping[str, Override] = MappingProxyType({})
    ) -> None:
        self.graph = graph
        self.order = graph.topological()
        self.overrides = overrides
        known = {"input", "const", *overrides}
        self.pieces = {n.name: piece_of(graph, n) for n in self.order if n.op not in known}

    def __call__(
        self, inputs: Mapping[str, Tensor], constants: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Outputs by public name. `constants` (variables) take the place of const nodes."""
        import tensorflow as tf

        values: dict[str, Tensor] = dict(inputs)
        for node in self.order:
            if node.op == "input":
                continue
            if node.op == "const":
                known = (constants or {}).get(node.name)
                values[node.name] = tf.constant(node.attrs["value"]) if known is None else known
            elif node.op in self.overrides:
                values[node.name] = self.overrides[node.op](node, values[node.inputs[0]])
            else:
                results = self.pieces[node.name](*(values[v] for v in node.inputs))
                values.update(zip(node.values, results, strict=True))
        return {public: values[value] for public, value in self.graph.outputs.items()}
