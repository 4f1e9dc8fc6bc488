"""The graph: nodes, the values they produce, and the users of values.

A value is named by a string: a node's first output has the node's own name, output `i > 0`
is `name:i`. Nodes are frozen; a change replaces a node. The index of users is kept as the graph
changes, so that a local rewrite costs the same in a graph of fifty nodes or fifty thousand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.graph_queries import GraphQueries
from qgraph.ir.node import Attrs, Node, node_of
from qgraph.ir.types import Shape, TensorType

__all__ = ["Attrs", "Graph", "Node", "node_of"]


class Graph(GraphQueries):
    """A mutable dataflow graph.

    Args:
        name: Name of the network.

    Attributes:
        nodes: The nodes by name. They are frozen; change them with the methods.
        types: The type of each value.
        inputs: Names of the `input` nodes, in calling order.
        outputs: For each public name of an output, the value.
        facts: Facts that passes have established (`Pass.ensures`).
        moments: Statistics of float values, from batch norms that were folded. Entries of removed
            values have no meaning.
        factors: Factors of channels that were found on samples (`EqualizeChannels.factors`).
        notes: Differences between the file and the graph, for the user.
        unread: For each opaque node, the attributes and inputs that its importer does not read.

    Examples:
        >>> from qgraph.ir.graph import Graph
        >>> graph = Graph("net")
        >>> x = graph.input("x", "float32", (None, 4))
        >>> graph.outputs["y"] = graph.add("relu", x)
        >>> graph
        Graph(net: 2 nodes, x float32[?,4] -> y float32[?,4])
    """

    def fresh(self, stem: str) -> str:
        """Find a node name that is not in use.

        Args:
            stem: The desired name.

        Returns:
            The stem itself, or `stem_1`, `stem_2` ...
        """
        name, count = stem, self._fresh.get(stem, 0)
        while name in self.nodes:
            count += 1
            name = f"{stem}_{count}"
        self._fresh[stem] = count
        return name

    def input(self, name: str, dtype: str, shape: Shape | None) -> str:
        """Add an input.

        Args:
            name: Name of the node.
            dtype: Type of the elements, such as `float32`.
            shape: Shape, with None for unknown dimensions; None if the rank is unknown too.

        Returns:
            Name of the value.
        """
        value = self.add("input", name=name, attrs={"type": TensorType(dtype, shape)})
        self.inputs.append(value)
        return value

    def const(self, value: object, name: str = "const") -> str:
        """Add a constant.

        Args:
            value: An array, or a value that numpy converts to one.
            name: Name of the node. It is made unique.

        Returns:
            Name of the value.
        """
        array = np.asarray(value)
        # In C order, because kernels would copy another layout at each call. An array that repeats
        # one number by strides of 0 is kept so.
        if 0 not in array.strides:
            array = np.asarray(array, order="C")
        return self.add("const", name=name, attrs={"value": array})

    def add(
        self,
        op: str,
        *inputs: str,
        name: str | None = None,
        attrs: Attrs | None = None,
        control: Iterable[str] = (),
        outputs: int = 1,
    ) -> str:
        """Add a node and infer its types.

        Args:
            op: Name of the op.
            inputs: Names of the values that it takes.
            name: Name of the node; None takes that of the op. It is made unique.
            attrs: Attributes by name.
            control: Names of nodes that must run before it.
            outputs: Number of its outputs.

        Returns:
            Name of its first value.

        Raises:
            GraphError: An input is missing, or the inputs do not fit the op.
        """
        node = Node(self.fresh(name or op), op, inputs, dict(attrs or {}), tuple(control), outputs)
        return self.insert(node)

    def insert(self, node: Node) -> str:
        """Add a node with the name that it has.

        Args:
            node: The node.

        Returns:
            Name of its first value.

        Raises:
            GraphError: The name is in use or has the form of a value's name, or the inputs do not
                fit the op.
        """
        if node.name in self.nodes:
            raise GraphError("a node of this name already exists", node=node.name)
        if node_of(node.name) != node.name:
            raise GraphError("`name:number` names a value, not a node", node=node.name)
        for needed in node.control:
            if needed not in self.nodes:
                raise GraphError(f"control input `{needed}` does not exist", node=node.name)
        types = self.infer(node)
        self.nodes[node.name] = node
        self.types.update(zip(node.values, types, strict=True))
        self._link(node)
        self._order = None
        return node.name

    def replace(self, node: Node) -> None:
        """Replace the node of the same name. Types of its users are inferred again.

        Args:
            node: The new node.

        Raises:
            GraphError: The inputs do not fit the op.
        """
        old = self.nodes[node.name]
        types = self.infer(node)
        self._unlink(old)
        self.nodes[node.name] = node
        for value in old.values[node.outputs :]:
            del self.types[value]
        changed = [v for v, t in zip(node.values, types, strict=True) if self.types.get(v) != t]
        self.types.update(zip(node.values, types, strict=True))
        self._link(node)
        self._order = None
        for value in changed:
            self._retype_users(value)

    def replace_all(self, nodes: Iterable[Node]) -> None:
        """Replace several nodes at once, then infer every type.

        This is for changes that only fit together, like a channel removed from two layers.

        Args:
            nodes: The new nodes. Each replaces the node of its name.

        Raises:
            GraphError: Inputs do not fit an op.
        """
        for node in nodes:
            self._unlink(self.nodes[node.name])
            self.nodes[node.name] = node
            self._link(node)
        self._order = None
        self.refresh_types()

    def set_attrs(self, name: str, **changes: object) -> None:
        """Change attributes of a node.

        Args:
            name: Name of the node.
            changes: New values of attributes, by name.

        Raises:
            GraphError: An attribute does not fit the op.
        """
        node = self.nodes[name]
        self.replace(replace(node, attrs={**node.attrs, **changes}))

    def redirect(self, old: str, new: str) -> None:
        """Make every user of a value, and every output of the graph, take another value.

        Args:
            old: Name of the value that is in use.
            new: Name of the value to use instead.

        Raises:
            GraphError: The new value does not fit a user.
        """
        for user in self.users(old):
            inputs = tuple(new if v == old else v for v in user.inputs)
            if user.name != node_of(new):
                self.replace(replace(user, inputs=inputs))
        for public, value in self.outputs.items():
            if value == old:
                self.outputs[public] = new

    def remove(self, name: str) -> None:
        """Remove a node whose values are not used.

        Args:
            name: Name of the node.

        Raises:
            GraphError: A value of the node is still used.
        """
        node = self.nodes[name]
        if self._control_users.get(name) or any(map(self.is_used, node.values)):
            raise GraphError("cannot be removed: it is still used", node=name)
        self._unlink(node)
        del self.nodes[name]
        for value in node.values:
            del self.types[value]
        if name in self.inputs:
            self.inputs.remove(name)
        self._order = None

    def _retype_users(self, value: str) -> None:
        """Infer again the types of everything that depends on `value`, as long as they change."""
        waiting = deque(self.users(value))
        while waiting:
            node = waiting.popleft()
            for produced, inferred in zip(node.values, self.infer(node), strict=True):
                if self.types[produced] != inferred:
                    self.types[produced] = inferred
                    waiting.extend(self.users(produced))

    def refresh_types(self) -> None:
        """Infer every type again, after the type of an input has changed.

        Raises:
            GraphError: The inputs of a node do not fit its op.
        """
        for node in self.topological():
            self.types.update(zip(node.values, self.infer(node), strict=True))

    def copy(self) -> Graph:
        """Copy the graph.

        Returns:
            A copy that can be changed independently. Arrays are shared; they are never written to.
        """
        other = Graph(self.name)
        other.nodes, other.types = dict(self.nodes), dict(self.types)
        other.inputs, other.outputs = list(self.inputs), dict(self.outputs)
        other.facts, other._fresh = set(self.facts), dict(self._fresh)
        other.moments, other.notes = dict(self.moments), list(self.notes)
        other.factors, other.unread = dict(self.factors), dict(self.unread)
        other._users = {k: dict(v) for k, v in self._users.items()}
        other._control_users = {k: dict(v) for k, v in self._control_users.items()}
        return other

    def _link(self, node: Node) -> None:
        for value in node.inputs:
            users = self._users.setdefault(value, {})
            users[node.name] = users.get(node.name, 0) + 1
        for name in node.control:
            users = self._control_users.setdefault(name, {})
            users[node.name] = users.get(node.name, 0) + 1

    def _unlink(self, node: Node) -> None:
        for value in set(node.inputs):
            del self._users[value][node.name]
        for name in set(node.control):
            del self._control_users[name][node.name]
