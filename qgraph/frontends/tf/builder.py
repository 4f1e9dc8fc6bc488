"""The importer: a GraphDef's nodes, one after the other, to nodes of the IR.

Each TensorFlow node, in order, becomes constants where its results are known; else ops of the IR,
by the table in `ops`; else an `opaque` op. The node with the TensorFlow node's name computes the
tensor of that name; its helpers are named `name/what`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qgraph.errors import GraphError, QGraphError
from qgraph.frontends.partial import Partial
from qgraph.frontends.site import Construction, ImportSite, Ref
from qgraph.frontends.tf.ends import needed
from qgraph.frontends.tf.inline import function_body
from qgraph.frontends.tf.node import TFNode, parse_ref, read_nodes
from qgraph.frontends.tf.opaque import infer_types, source_of
from qgraph.frontends.tf.refused import is_loop, loop_at
from qgraph.ir.types import Shape, TensorType

# Result of an importer: the values of the node's outputs (None for one on a branch that is never
# taken), or None where it cannot express the node.
Result = str | tuple[str | None, ...] | None
Importer = Callable[["TfSite"], Result]
Evaluator = Callable[["TfSite"], tuple[Partial, ...] | None]

MERGES = ("Merge", "RefMerge")


@dataclass(frozen=True)
class TfSite(ImportSite["GraphBuilder", TFNode]):
    """One TensorFlow node during its import: its inputs as values of the IR."""

    live: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class TensorList:
    """A list of tensors of a loop: the value of each element, None before it is set."""

    items: tuple[str | None, ...]


@dataclass(frozen=True)
class Function:
    """A function of a graph: its arguments, nodes that its results need, and results."""

    arguments: Sequence[str]
    nodes: Sequence[TFNode]
    results: Sequence[Ref]


class GraphBuilder(Construction):
    """The graph under construction, and known values of its tensors."""

    def __init__(
        self,
        name: str,
        taken: Mapping[str, TFNode],
        library: bytes,
        importers: Mapping[str, Importer],
        evaluators: Mapping[str, Evaluator],
    ) -> None:
        super().__init__(name, taken)
        self._library = library
        self._importers = importers
        self._evaluators = evaluators
        self._values: dict[str, tuple[str | None, ...]] = {}
        self._dead: set[str] = set()
        self._functions: dict[str, Function] = {}
        self.lists: dict[str, TensorList] = {}

    def add_list(self, name: str, items: tuple[str | None, ...]) -> str:
        """A list of tensors as a value, which exists only during import."""
        self.lists[name] = TensorList(items)
        return name

    def function(self, name: str) -> Function:
        if name not in self._functions:
            graph_def, arguments, results = function_body(self._library, name)
            refs = [parse_ref(result) for result in results]
            order = needed(read_nodes(graph_def), refs, arguments)
            inner = [node for node in order if node.name not in arguments]
            self._functions[name] = Function(arguments, inner, refs)
        return self._functions[name]

    def call(
        self, function: Function, name: str, arguments: Sequence[str | None]
    ) -> tuple[str | None, ...]:
        """Import the body of a function under a name; its results."""
        for argument, value in zip(function.arguments, arguments, strict=True):
            self._values[f"{name}/{argument}"] = (value,)
        for node in function.nodes:
            self.add(node.inside(name))
        return tuple(self.value((f"{name}/{node}", i), name) for node, i in function.results)

    def add_input(self, name: str, dtype: str, shape: Shape | None) -> None:
        self._values[name] = (self.graph.input(name, dtype, shape),)

    def value(self, ref: Ref, user: str) -> str | None:
        """The value for a tensor; None if it lies on a branch that is never taken."""
        name, index = ref
        if name in self._dead:
            return None
        values = self._values[name]
        if index >= len(values):
            raise GraphError(f"`{name}` has no output {index}", node=user)
        return values[index]

    def values(self, name: str) -> tuple[str, ...]:
        """Every live value of an imported node."""
        return tuple(v for v in self._values.get(name, ()) if v is not None)

    def add(self, node: TFNode) -> None:
        """Import `node`, whose inputs are imported. Raises GraphError where it does not fit."""
        if node.name in self._values:
            return
        live = tuple(self.value(ref, node.name) for ref in node.inputs)
        present = tuple(v for v in live if v is not None)
        skipped = any(name in self._dead for name in node.control)
        if skipped or (len(present) < len(live) and node.op not in MERGES):
            self._dead.add(node.name)
            return
        try:
            partials, result = self._import(TfSite(self, node.name, present, node, live))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise GraphError(f"this `{node.op}` is malformed: {error}", node=node.name) from None
        values = (result,) if isinstance(result, str) else result
        self._values[node.name] = values
        for value, partial in zip(values, partials or (), strict=False):
            if value is not None:
                self.partials.setdefault(value, partial)
        self._pass_constant_through(values[0] if values else None)

    def _import(
        self, site: TfSite
    ) -> tuple[tuple[Partial, ...] | None, str | tuple[str | None, ...]]:
        op = site.node.op
        partials = self.attempt(self._evaluators[op], site) if op in self._evaluators else None
        if partials is not None and all(p.complete for p in partials):
            return partials, self._constants_for(site, partials)
        try:
            importer = self._importers.get(op)
            result = None if importer is None else self.attempt(importer, site)
        except GraphError as error:
            return partials, self._opaque_instead(site, partials, error)
        return partials, self._opaque(site, partials) if result is None else result

    def _opaque_instead(
        self, site: TfSite, partials: Sequence[Partial] | None, error: GraphError
    ) -> tuple[str, ...]:
        """Import a node; one that the IR cannot express (of unknown rank or above 4) stays opaque.

        An unknown shape of an input is an error, because the user can give it.
        """
        if any(self.graph.types[i].shape is None for i in self.graph.inputs):
            raise error
        try:
            return self._opaque(site, partials)
        except QGraphError:
            raise error from None

    def _constants_for(self, site: TfSite, partials: Sequence[Partial]) -> tuple[str, ...]:
        first, *rest = partials
        return (
            site.const(first.values),
            *(site.const(p.values, str(i + 1)) for i, p in enumerate(rest)),
        )

    def _opaque(self, site: TfSite, partials: Sequence[Partial] | None) -> tuple[str, ...]:
        node, graph = site.node, self.graph
        if is_loop(node.op) or any(value in self.lists for value in site.inputs):
            raise loop_at(node)
        source = source_of(node, self._library, [graph.types[v] for v in site.inputs])
        if partials is not None:
            types = tuple(TensorType(p.values.dtype.name, p.values.shape) for p in partials)
        else:
            types = infer_types(source, [self.partials.get(v) for v in site.inputs])
        if not types:
            raise GraphError(f"`{node.op}` has no outputs", node=node.name)
        attrs = {"kind": node.op, "types": types, "source": source}
        graph.add("opaque", *site.inputs, name=node.name, attrs=attrs, outputs=len(types))
        return graph.nodes[node.name].values
