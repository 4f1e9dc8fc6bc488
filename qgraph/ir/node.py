"""A node of a graph, the names of its values, and the interface of graphs to readers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from qgraph.errors import GraphError
from qgraph.ir.ops import op_definition
from qgraph.ir.types import TensorType
from qgraph.ops.attributes import Attributes, attributes_of

Attrs = Mapping[str, Any]
A = TypeVar("A", bound=Attributes)
OUTPUT = re.compile(r":[1-9][0-9]*\Z")  # at the end of a value's name; `x:0` is an ordinary name


@dataclass(frozen=True)
class Node:
    """One operation of a graph.

    Attributes:
        name: Name of the node. It is also the name of its first value; the others are `name:1`,
            `name:2` ...
        op: Name of the op.
        inputs: Names of the values that it takes.
        attrs: The attributes that were given, by name. `attributes` has the defaults too.
        control: Names of the nodes that must run before it.
        outputs: Number of its values.

    Examples:
        >>> from qgraph.ir.graph import Node
        >>> Node("halves", "split", ("x",), {"axis": 1}, outputs=2).values
        ('halves', 'halves:1')
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    attrs: Attrs = field(default_factory=dict)
    control: tuple[str, ...] = ()
    outputs: int = 1
    _typed: Attributes | None = field(default=None, repr=False, compare=False, kw_only=True)
    _typed_from: Attrs | None = field(default=None, repr=False, compare=False, kw_only=True)

    @property
    def values(self) -> tuple[str, ...]:
        """Names of its values."""
        if self.outputs == 1:  # nearly every node
            return (self.name,)
        return (self.name, *(f"{self.name}:{i}" for i in range(1, self.outputs)))

    @property
    def attributes(self) -> Attributes:
        """All attributes, defaults included. Raises GraphError where they do not fit the op."""
        kind: type[Attributes] = op_definition(self.op, self.name).attributes
        if self._typed is not None and self._typed_from is self.attrs and type(self._typed) is kind:
            return self._typed
        try:
            found = attributes_of(kind, self.attrs)
        except GraphError as error:
            raise GraphError(
                f"{self.op}: {error.message}", node=self.name, hint=error.hint
            ) from None
        object.__setattr__(self, "_typed", found)
        object.__setattr__(self, "_typed_from", self.attrs)
        return found

    def typed(self, kind: type[A]) -> A:
        """Get the attributes with a static type.

        Args:
            kind: The class of attributes to expect.

        Returns:
            The attributes, with defaults.

        Raises:
            GraphError: The attributes are of another class, or do not fit the op.
        """
        found = self.attributes
        if isinstance(found, kind):
            return found
        raise GraphError(
            f"{self.op}: attributes are {type(found).__name__}, not {kind.__name__}", node=self.name
        )


def node_of(value: str) -> str:
    """The name of the node that produces `value`."""
    return OUTPUT.sub("", value) if ":" in value else value


class ReadableGraph(Protocol):
    """The part of a graph that the verifier and the printer read."""

    name: str
    nodes: dict[str, Node]
    types: dict[str, TensorType]
    inputs: list[str]
    outputs: dict[str, str]
    _users: dict[str, dict[str, int]]
    _control_users: dict[str, dict[str, int]]

    def topological(self) -> list[Node]: ...

    def computed_order(self) -> list[Node]: ...

    def infer(self, node: Node) -> Sequence[TensorType]: ...
