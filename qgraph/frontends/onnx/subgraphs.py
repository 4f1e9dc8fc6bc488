"""Graphs inside nodes: the bodies of `If` and `Loop`, as nodes under a prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from qgraph.errors import GraphError
from qgraph.foreign import OnnxObject
from qgraph.frontends.onnx.node import OnnxNode, ir_name
from qgraph.frontends.site import Ref


def captured(attrs: Mapping[str, object]) -> tuple[str, ...]:
    """Names of outer tensors that the graphs among a node's attributes read."""
    graphs = [value for value in attrs.values() if hasattr(value, "nodes")]
    return tuple(dict.fromkeys(name for graph in graphs for name in _outer(graph)))


def _outer(graph: OnnxObject) -> Iterator[str]:
    own = {tensor.name for tensor in graph.inputs}
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor.name and tensor.name not in own and not hasattr(tensor, "_values"):
                yield tensor.name
        yield from (name for name in captured(node.attrs) if name not in own)
        own.update(tensor.name for tensor in node.outputs)
    for tensor in graph.outputs:
        if tensor.name not in own and not hasattr(tensor, "_values"):
            yield tensor.name


@dataclass(frozen=True)
class Scope:
    """Tensors that a body sees, by name; `constant` adds one that the body holds."""

    prefix: str
    tensors: dict[str, Ref]
    constant: Callable[[str, OnnxObject], Ref]
    node: str

    def ref(self, tensor: OnnxObject) -> Ref | None:
        """The place of a tensor; None for an omitted one."""
        name = tensor.name
        if not name:
            return None
        if name not in self.tensors and hasattr(tensor, "_values"):
            self.tensors[name] = self.constant(f"{self.prefix}/{ir_name(name)}", tensor)
        if name not in self.tensors:
            raise GraphError(
                f"input `{name}` does not exist", node=self.node, hint="the graph is damaged"
            )
        return self.tensors[name]


def body_nodes(
    graph: OnnxObject, scope: Scope, versions: Callable[[str], int]
) -> Iterator[OnnxNode]:
    """The nodes of a body, in its order; the outputs of each join the scope."""
    for node in graph.nodes:
        outputs = tuple(f"{scope.prefix}/{ir_name(t.name)}" if t.name else "" for t in node.outputs)
        name = next((o for o in outputs if o), "")
        if not name:
            continue
        slots = tuple(scope.ref(tensor) for tensor in node.inputs)
        captures = {t: scope.tensors[t] for t in captured(node.attrs) if t in scope.tensors}
        domain = node.domain or ""
        label = node.name or node.op
        yield OnnxNode(
            name, node.op, domain, versions(domain), slots, outputs, node.attrs, label, (), captures
        )
        for index, tensor in enumerate(node.outputs):
            if tensor.name:
                scope.tensors[tensor.name] = (name, index)


def check_inputs(graph: OnnxObject, given: Sequence[str], node: str) -> None:
    """Raise GraphError where a body does not take the inputs that it is given."""
    if len(graph.inputs) != len(given):
        raise GraphError(
            f"a graph inside it takes {len(graph.inputs)} inputs, and gets {len(given)}", node=node
        )
