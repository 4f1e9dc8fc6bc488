"""Questions about a graph: the part of `Graph` that changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable

from qgraph.errors import GraphError
from qgraph.ir.node import Node, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.structure import ConstantAttrs, OpaqueAttrs, opaque_types
from qgraph.ir.order import inputs_first
from qgraph.ir.printing import print_graph
from qgraph.ir.types import Array, Moments, TensorType
from qgraph.ir.verify import verify
from qgraph.notebook import folded_html

MAX_ELEMENTS = 1 << 30  # elements of a tensor, for one sample if the batch size is unknown


class GraphQueries:
    """The content of a graph, and questions about it. `Graph` adds changes."""

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.nodes: dict[str, Node] = {}
        self.types: dict[str, TensorType] = {}
        self.inputs: list[str] = []
        self.outputs: dict[str, str] = {}
        self.facts: set[str] = set()
        self.moments: dict[str, Moments] = {}
        self.factors: dict[str, tuple[int, ...]] = {}
        self.notes: list[str] = []
        self.unread: dict[str, str] = {}
        self._users: dict[str, dict[str, int]] = {}
        self._control_users: dict[str, dict[str, int]] = {}
        self._order: list[Node] | None = None
        self._fresh: dict[str, int] = {}

    def __str__(self) -> str:
        """The text form of the graph (`qgraph.ir.printing`)."""
        return print_graph(self)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name} {self.types.get(name)}" for name in self.inputs)
        outputs = ", ".join(f"{name} {self.types.get(v)}" for name, v in self.outputs.items())
        return f"Graph({self.name}: {len(self.nodes)} nodes, {inputs} -> {outputs})"

    def _repr_html_(self) -> str:
        return folded_html(repr(self), str(self))

    def producer(self, value: str) -> Node:
        """Get the node that computes a value.

        Args:
            value: Name of the value.

        Returns:
            The node.

        Raises:
            GraphError: No node computes it.
        """
        try:
            return self.nodes[node_of(value)]
        except KeyError:
            raise GraphError("no node produces this value", node=value) from None

    def users(self, value: str) -> list[Node]:
        """List the nodes that take a value as a data input.

        Args:
            value: Name of the value.

        Returns:
            The nodes, each once, oldest first.
        """
        return [self.nodes[name] for name in self._users.get(value, ())]

    def control_users(self, name: str) -> list[Node]:
        """List the nodes that have a control input from a node.

        Args:
            name: Name of the node.

        Returns:
            The nodes.
        """
        return [self.nodes[user] for user in self._control_users.get(name, ())]

    def use_count(self, value: str) -> int:
        """Count the uses of a value, as an input of nodes and as an output of the graph.

        Args:
            value: Name of the value.

        Returns:
            The number of uses.
        """
        return sum(self._users.get(value, {}).values()) + sum(
            1 for output in self.outputs.values() if output == value
        )

    def is_used(self, value: str) -> bool:
        """Check whether a node takes a value as an input, or it is an output of the graph.

        Args:
            value: Name of the value.

        Returns:
            Whether it is used.
        """
        return bool(self._users.get(value)) or self.is_output(value)

    def is_output(self, value: str) -> bool:
        """Check whether a value is an output of the graph.

        Args:
            value: Name of the value.

        Returns:
            Whether it is an output.
        """
        return value in self.outputs.values()

    def constant(self, value: str) -> Array | None:
        """Get the array of a constant.

        Args:
            value: Name of a value.

        Returns:
            The array; None if the value is not a constant.
        """
        node = self.nodes.get(value)
        return node.typed(ConstantAttrs).value if node is not None and node.op == "const" else None

    def topological(self) -> list[Node]:
        """List all nodes in topological order.

        Returns:
            Every node after the nodes that it needs, depth first from the inputs and outputs.
        """
        if self._order is None:
            self._order = self.computed_order()
        return self._order

    def computed_order(self) -> list[Node]:
        """Compute the topological order, even if a stored one exists.

        Returns:
            The nodes, as from `topological`.

        Raises:
            GraphError: The graph has a cycle; the error names it.
        """
        roots = [*self.inputs, *(node_of(v) for v in self.outputs.values()), *self.nodes]
        order = inputs_first((root for root in roots if root in self.nodes), self._needs)
        return [self.nodes[name] for name in order]

    def ancestors(self, values: Iterable[str]) -> set[str]:
        """Find the nodes that values depend on.

        Args:
            values: Names of values.

        Returns:
            Names of the nodes, those that compute the values included.
        """
        return set(inputs_first(map(node_of, values), self._needs))

    def _needs(self, name: str) -> list[str]:
        """The nodes that a node needs, except missing ones, which `verify` reports."""
        node, nodes = self.nodes[name], self.nodes
        return [n for n in (*map(node_of, node.inputs), *node.control) if n in nodes]

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        """Infer the types of a node from the types of its inputs.

        Args:
            node: The node, which need not be in the graph.

        Returns:
            The type of each output.

        Raises:
            GraphError: An input is missing, or the inputs do not fit the op.
        """
        definition = op_definition(node.op, node.name)
        try:
            inputs = [self.types[v] for v in node.inputs]
        except KeyError as error:
            raise GraphError(f"input `{error.args[0]}` does not exist", node=node.name) from None
        attributes = node.attributes
        try:
            types = definition.types(attributes, inputs)
            if isinstance(attributes, OpaqueAttrs):
                types = opaque_types(attributes, inputs, [self.constant(v) for v in node.inputs])
        except GraphError as error:
            raise GraphError(
                f"{node.op}: {error.message}", node=node.name, hint=error.hint
            ) from None
        if len(types) != node.outputs:
            raise GraphError(
                f"{node.op}: has {node.outputs} outputs, its op gives {len(types)}", node=node.name
            )
        for kind in types:
            size = math.prod(filter(None, kind.shape or ()))
            if size > MAX_ELEMENTS:
                raise GraphError(f"{node.op}: a tensor of {size:,} elements", node=node.name)
        return types

    def verify(self) -> None:
        """Check that the graph is well formed (`qgraph.ir.verify`).

        Raises:
            GraphError: The graph is not well formed; the error names the node.
        """
        verify(self)

    def contents(self) -> list[object]:
        """List everything that a pass can change, to find out whether it did.

        Returns:
            Nodes, types and names. They are frozen, so comparing identities is enough.
        """
        ends = [*self.inputs, *self.outputs, *self.outputs.values()]
        return [*self.nodes.values(), *self.types.values(), *ends]
