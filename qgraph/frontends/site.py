"""State of importers: the graph under construction, and the node that is being imported.

The builder and site of each file format add functions to read its nodes and their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from qgraph.errors import first_line
from qgraph.foreign import AttrValue
from qgraph.frontends.batch import BatchTracker
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.partial import MAX_TRACKED, Partial, elementwise, worth_tracking
from qgraph.frontends.watched import WatchedAttributes, WatchedInputs
from qgraph.ir.graph import Graph, node_of
from qgraph.ir.ops import op_definition
from qgraph.ir.types import Array, Shape, TensorType

Partials = tuple[Partial, ...] | None
VIEWS = frozenset({"identity", "expand_dims", "squeeze", "reshape"})
Ref = tuple[str, int]  # node name, output index
R = TypeVar("R")


class FileNode(Protocol):
    """A node of any format, with the methods that watching attributes needs."""

    @property
    def attrs(self) -> Mapping[str, AttrValue]: ...
    def with_attrs(self: N, attrs: Mapping[str, AttrValue]) -> N: ...
    def value_as_text(self, key: str) -> str: ...
    def may_ignore(self, key: str) -> bool:
        """Whether attribute `key` holds its default, or can never change a number."""


class Construction:
    """The graph under construction, known values of its tensors, and names that are `taken`."""

    def __init__(self, name: str, taken: Container[str]) -> None:
        self.graph = Graph(name)
        self.partials: dict[str, Partial] = {}
        self.batch = BatchTracker(self.graph)
        self._taken = taken
        self._constants: dict[str, Array] = {}

    def free(self, stem: str) -> str:
        """A name for a helper, unused in the file."""
        name, count = stem, 0
        while name in self._taken or name in self.graph.nodes:
            count += 1
            name = f"{stem}_{count}"
        return name

    def const(self, value: object, name: str) -> str:
        array = np.asarray(value)
        result = self.graph.const(array, name)
        self._constants[result] = array
        if worth_tracking(array):
            self.partials[result] = Partial.known(array)
        return result

    def constant(self, value: str) -> Array | None:
        """The array of a constant `value`, also through ops that make a view of it."""
        return self._constants.get(value)

    def attempt(self, function: Callable[[S], R], place: S) -> R | None:
        """Result of `function` for a node; None where it cannot express it.

        It is also None where an input, or an attribute that differs from its default, was not read
        (listed in `Graph.unread`). An attempt that fails leaves no node in the graph.
        """
        before, watched = len(self.graph.nodes), place.watched()
        self.graph.unread.pop(place.name, None)
        result: R | None = None
        try:
            result = function(watched)
        except Inexpressible:
            return None
        finally:
            if result is not None and (ignored := watched.ignored()):
                self.graph.unread[place.name] = ", ".join(map(place.in_words, ignored))
                result = None
            if result is None:
                self._undo(before)
        return result

    def _undo(self, before: int) -> None:
        """Remove all nodes except the `before` oldest, and their known values."""
        for name in list(islice(reversed(self.graph.nodes), len(self.graph.nodes) - before)):
            self.graph.remove(name)
            self.forget(name)

    def forget(self, value: str) -> None:
        self._constants.pop(value, None)
        self.partials.pop(value, None)
        self.batch.forget(value)

    def _pass_constant_through(self, value: str | None) -> None:
        """Know the array of `value` if it is a view of a constant."""
        made = self.graph.nodes.get(value) if value is not None else None
        if made is None or value is None or made.op not in VIEWS or value in self._constants:
            return
        array, evaluate = self._constants.get(made.inputs[0]), op_definition(made.op).evaluate
        if array is not None and evaluate is not None:
            self._constants[value] = evaluate(made.attributes, [array])


C = TypeVar("C", bound=Construction)
N = TypeVar("N", bound=FileNode)


@dataclass(frozen=True)
class ImportSite(Generic[C, N]):
    """One node of the file during its import: `inputs` are its inputs as values of the IR."""

    builder: C
    name: str
    inputs: Sequence[str]
    node: N

    def watched(self: S) -> S:
        """The same site, which records the inputs and attributes that are read."""
        node = self.node.with_attrs(WatchedAttributes(self.node.attrs))
        return replace(self, inputs=WatchedInputs(self.inputs), node=node)

    def without_effect(self, *keys: str | int) -> None:
        """Declare attributes (names) and inputs (numbers) that change nothing here."""
        attrs, inputs = self.node.attrs, self.inputs
        if isinstance(attrs, WatchedAttributes):
            attrs.mark(key for key in keys if isinstance(key, str))
        if isinstance(inputs, WatchedInputs):
            inputs.mark(key for key in keys if isinstance(key, int))

    def ignored(self) -> tuple[str | int, ...]:
        """Inputs and attributes of a watched site that matter and were not read."""
        attrs, inputs = self.node.attrs, self.inputs
        unread = attrs.unread() if isinstance(attrs, WatchedAttributes) else ()
        missed = inputs.unread() if isinstance(inputs, WatchedInputs) else ()
        return (*missed, *(key for key in unread if not self.node.may_ignore(key)))

    def in_words(self, key: str | int) -> str:
        """An input or an attribute with its value, in short."""
        if isinstance(key, int):
            return f"input {key} (`{self.inputs[key]}`)"
        value = " ".join(self.node.value_as_text(key).split())
        return f"attribute `{key}` ({first_line(value, 60)})"

    def emit(self, op: str, *inputs: str, **attrs: object) -> str:
        """The node of the IR that computes this node's (first) output."""
        return self.builder.graph.add(op, *inputs, name=self.name, attrs=attrs)

    def helper(self, what: str, op: str, *inputs: str, **attrs: object) -> str:
        name = self.builder.free(f"{self.name}/{what}")
        return self.builder.graph.add(op, *inputs, name=name, attrs=attrs)

    def const(self, value: object, what: str | None = None) -> str:
        name = self.name if what is None else self.builder.free(f"{self.name}/{what}")
        return self.builder.const(value, name)

    def type(self, i: int = 0) -> TensorType:
        return self.builder.graph.types[self.inputs[i]]

    def shape(self, i: int = 0) -> Shape | None:
        return self.type(i).shape

    def constant(self, i: int) -> Array | None:
        """The array of input `i`; None if it is not constant."""
        return self.builder.constant(self.inputs[i])

    def is_fixed(self, i: int) -> bool:
        """Whether input `i` is computed from constants only."""
        graph, waiting, seen = self.builder.graph, [node_of(self.inputs[i])], set[str]()
        while waiting:
            node = graph.nodes[waiting.pop()]
            if node.op != "const" and not node.inputs:
                return False
            seen.add(node.name)
            waiting += [name for name in map(node_of, node.inputs) if name not in seen]
        return True

    def partial(self, i: int) -> Partial | None:
        return self.builder.partials.get(self.inputs[i])

    def dims(self, i: int = 0, dtype: str = "int64") -> Partial | None:
        """The shape of input `i` as a tensor; None where its rank is unknown."""
        shape = self.shape(i)
        if shape is None:
            return None
        names = np.full(len(shape), None, object)
        for axis, d in enumerate(shape):
            if d is None:
                value = self.inputs[i]
                names[axis] = self.builder.batch.origin(value) if axis == 0 else f"{value}[{axis}]"
        return Partial(np.array([d or 0 for d in shape], dtype), names)

    def integers(self, i: int) -> tuple[int, ...] | None:
        """Input `i` as a tuple of integers, if it is a small constant; else None."""
        value = self.small_constant(i)
        return None if value is None else tuple(int(v) for v in np.ravel(value))

    def small_constant(self, i: int) -> Array | None:
        """Like `constant`, but None where there are too many elements for a loop in Python."""
        value = self.constant(i)
        return None if value is None or value.size > MAX_TRACKED else value


AnySite: TypeAlias = ImportSite[Any, Any]
S = TypeVar("S", bound=AnySite)


def of_all(function: Callable[[S, list[Partial]], Any]) -> Callable[[S], Partials]:
    """An evaluator that needs partly known inputs, and gives small tensors.

    `function` gives a Partial, several, or None.
    """

    def evaluate(site: S) -> Partials:
        if not all(site.inputs):  # an optional input is omitted
            return None
        args = [site.partial(i) for i in range(len(site.inputs))]
        known = [a for a in args if a is not None]
        if not known or len(known) < len(args):
            return None
        result = function(site, known)
        results = (result,) if isinstance(result, Partial) else result
        if results is None or any(r.values.size > MAX_TRACKED for r in results):
            return None
        return tuple(results)

    return evaluate


def of_elements(
    function: Callable[..., Array], dtype: str | None = None
) -> Callable[[S], Partials]:
    """An evaluator of small tensors, element by element; `dtype` of the result, if not the same."""
    return of_all(lambda site, args: elementwise(function, args, dtype))
