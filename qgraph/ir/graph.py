"""The graph: nodes, the values they produce, and the users of values.

A value is named by a string: a node's first output has the node's own name, output `i > 0`
is `name:i`. Nodes are frozen; a change replaces a node. The index of users is kept as the graph
changes, so that a local rewrite costs the same in a graph of fifty nodes or fifty thousand.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.node import Attrs, Node, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.ops.structure import ConstantAttrs, OpaqueAttrs, opaque_types
from qgraph.ir.order import inputs_first
from qgraph.ir.printing import print_graph
from qgraph.ir.types import Array, Moments, Shape, TensorType
from qgraph.ir.verify import verify
from qgraph.notebook import folded_html

__all__ = ["Attrs", "Graph", "Node", "node_of"]

LARGEST = 1 << 30  # elements of a tensor, for one sample where the batch size is unknown


class Graph:
    """A mutable dataflow graph.

    `inputs` are names of `input` nodes, in calling order. `outputs` maps each public name to
    the value it stands for. `facts` are what passes have established (`Pass.ensures`). `moments`
    are statistics of float values, from batch norms that were folded; entries of removed values
    have no meaning. `factors` are those that samples gave to channels (`EqualizeChannels.factors`).
    `notes` inform the user about differences between the file and the graph.
    `unread` has for each opaque node the attributes and inputs that its importer does not read.
    """

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

    # -- reading ---------------------------------------------------------------------------

    def producer(self, value: str) -> Node:
        try:
            return self.nodes[node_of(value)]
        except KeyError:
            raise GraphError("no node produces this value", node=value) from None

    def users(self, value: str) -> list[Node]:
        """Nodes that take `value` as a data input, each once, oldest first."""
        return [self.nodes[name] for name in self._users.get(value, ())]

    def control_users(self, name: str) -> list[Node]:
        return [self.nodes[user] for user in self._control_users.get(name, ())]

    def use_count(self, value: str) -> int:
        """How often `value` is used: as an input of nodes and as an output of the graph."""
        return sum(self._users.get(value, {}).values()) + sum(
            1 for output in self.outputs.values() if output == value
        )

    def is_used(self, value: str) -> bool:
        """Whether a node takes `value` as an input, or it is an output of the graph."""
        return bool(self._users.get(value)) or self.is_output(value)

    def is_output(self, value: str) -> bool:
        return value in self.outputs.values()

    def constant(self, value: str) -> Array | None:
        """The array behind `value` if a `const` node makes it, else None."""
        node = self.nodes.get(value)
        return node.typed(ConstantAttrs).value if node is not None and node.op == "const" else None

    def topological(self) -> list[Node]:
        """Every node after the nodes it needs, depth first from the inputs and outputs."""
        if self._order is None:
            self._order = self.order_anew()
        return self._order

    def order_anew(self) -> list[Node]:
        """The topological order, computed again. Raises GraphError that names a cycle."""
        roots = [*self.inputs, *(node_of(v) for v in self.outputs.values()), *self.nodes]
        order = inputs_first((root for root in roots if root in self.nodes), self._needs)
        return [self.nodes[name] for name in order]

    def ancestors(self, values: Iterable[str]) -> set[str]:
        """Names of the nodes that `values` depend on, those that produce them included."""
        return set(inputs_first(map(node_of, values), self._needs))

    def _needs(self, name: str) -> list[str]:
        """The nodes that a node needs, except missing ones, which `verify` reports."""
        node, nodes = self.nodes[name], self.nodes
        return [n for n in (*map(node_of, node.inputs), *node.control) if n in nodes]

    def verify(self) -> None:
        """Raises GraphError unless the graph is well formed (`qgraph.ir.verify`)."""
        verify(self)

    def contents(self) -> list[object]:
        """Everything that a pass can change. Nodes and types are frozen: compare by identity."""
        ends = [*self.inputs, *self.outputs, *self.outputs.values()]
        return [*self.nodes.values(), *self.types.values(), *ends]

    # -- changing --------------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        """A node name that is not taken: `stem` itself, or `stem_1`, `stem_2` ..."""
        name, count = stem, self._fresh.get(stem, 0)
        while name in self.nodes:
            count += 1
            name = f"{stem}_{count}"
        self._fresh[stem] = count
        return name

    def input(self, name: str, dtype: str, shape: Shape | None) -> str:
        value = self.add("input", name=name, attrs={"type": TensorType(dtype, shape)})
        self.inputs.append(value)
        return value

    def const(self, value: object, name: str = "const") -> str:
        array = np.asarray(value)
        # In C order: kernels would copy another layout at each call. One number that stands for
        # many, by strides of 0, stays one.
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
        """Add a node, infer its types and return the name of its first value.

        The name is made unique. Raises GraphError where inputs are missing or do not fit.
        """
        node = Node(self.fresh(name or op), op, inputs, dict(attrs or {}), tuple(control), outputs)
        return self.insert(node)

    def insert(self, node: Node) -> str:
        """Add `node` as it is. Raises GraphError if its name is taken, or names a value."""
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

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        """The types that `node` would have, from the types of its inputs."""
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
            if size > LARGEST:
                raise GraphError(f"{node.op}: a tensor of {size:,} elements", node=node.name)
        return types

    def replace(self, node: Node) -> None:
        """Replace the node of the same name by `node`; types of users are inferred again."""
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
        """Replace the nodes of the same names, all at once, then infer every type.

        This is for changes that only fit together, like a channel removed from two layers.
        """
        for node in nodes:
            self._unlink(self.nodes[node.name])
            self.nodes[node.name] = node
            self._link(node)
        self._order = None
        self.refresh_types()

    def set_attrs(self, name: str, **changes: object) -> None:
        node = self.nodes[name]
        self.replace(replace(node, attrs={**node.attrs, **changes}))

    def redirect(self, old: str, new: str) -> None:
        """Make every user of value `old`, and every output, take `new` instead."""
        for user in self.users(old):
            inputs = tuple(new if v == old else v for v in user.inputs)
            if user.name != node_of(new):
                self.replace(replace(user, inputs=inputs))
        for public, value in self.outputs.items():
            if value == old:
                self.outputs[public] = new

    def remove(self, name: str) -> None:
        """Remove a node that nothing uses. Raises GraphError if something does."""
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
        """Infer the types of all that depends on `value` again, as long as they change."""
        waiting = deque(self.users(value))
        while waiting:
            node = waiting.popleft()
            for produced, inferred in zip(node.values, self.infer(node), strict=True):
                if self.types[produced] != inferred:
                    self.types[produced] = inferred
                    waiting.extend(self.users(produced))

    def refresh_types(self) -> None:
        """Infer every type again, after an input's type has changed."""
        for node in self.topological():
            self.types.update(zip(node.values, self.infer(node), strict=True))

    def copy(self) -> Graph:
        """A copy that can be changed independently (arrays are shared, and never written)."""
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
