"""The importer: a model's nodes, one after the other, to nodes of the IR.

Each ONNX node, in order, becomes constants where its results are known; else ops of the IR, by the
table in `ops`; else an `opaque` op. The node with the name of an ONNX tensor computes that tensor;
its helpers are named `name/what`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError, LoadError, QGraphError, UnsupportedError
from qgraph.foreign import OnnxObject
from qgraph.frontends.grids import Grid, mark
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.functions import by_other_ops
from qgraph.frontends.onnx.model import through_graphsurgeon
from qgraph.frontends.onnx.node import OnnxNode, ir_name
from qgraph.frontends.onnx.opaque import OnnxSource, infer_types, parsed, source_of
from qgraph.frontends.onnx.subgraphs import Scope, body_nodes, check_inputs
from qgraph.frontends.onnx.tensors import decode
from qgraph.frontends.partial import MAX_TRACKED, Partial
from qgraph.frontends.site import Construction, ImportSite, Ref
from qgraph.interpret import run_node
from qgraph.ir.narrow_floats import widened_array
from qgraph.ir.ops import op_definition
from qgraph.ir.types import Array, Shape, TensorType

# Result of an importer: the values of the node's outputs, or None where it cannot express the node.
Result = str | tuple[str, ...] | None
Importer = Callable[["OnnxSite"], Result]
Evaluator = Callable[["OnnxSite"], tuple[Partial, ...] | None]

# Limits of constants that are computed during loading: elements of one, and of all together.
MAX_RESULT = 1 << 24
MAX_TOTAL = 1 << 28
VIEWS = ("transpose", "identity", "squeeze", "expand_dims", "slice")
NO_MOVES = ("max_pool", "reduce_max")


@dataclass(frozen=True)
class OnnxSite(ImportSite["OnnxGraphBuilder", OnnxNode]):
    """One ONNX node during its import; an omitted input is ""."""

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and bool(self.inputs[i])

    def emit(self, op: str, *inputs: str, **attrs: object) -> str:
        return self.builder.make(self.name, op, inputs, attrs)

    def helper(self, what: str, op: str, *inputs: str, **attrs: object) -> str:
        return self.builder.make(self.builder.free(f"{self.name}/{what}"), op, inputs, attrs)

    def derived(self, key: Hashable, compute: Callable[[], Array], what: str) -> str:
        """The constant helper that `key` describes, shared by all nodes that need it."""
        return self.builder.derived(key, compute, self.builder.free(f"{self.name}/{what}"))

    def named(self, i: int) -> str:
        """The name for output `i`, or that of a helper where the output is omitted."""
        outputs = self.node.outputs
        given = outputs[i] if i < len(outputs) else ""
        return given or self.builder.free(f"{self.name}/output{i}")

    def constant(self, i: int) -> Array | None:
        return super().constant(i) if self.has(i) else None

    def setting(self, key: str, i: int) -> tuple[int, ...] | None:
        """Value of attribute `key` (older opsets) or of input `i` (newer ones); None without."""
        if key in self.node.attrs or not self.has(i):
            return self.node.integers(key)
        found = self.integers(i)
        if found is None:
            raise Inexpressible
        return found

    def scalar(self, value: float, what: str, i: int = 0) -> str:
        """A constant of the type of input `i`."""
        return self.const(np.asarray(value, self.type(i).dtype), what)

    def rank(self, i: int = 0) -> int:
        """The rank of input `i`, which must be known."""
        rank = self.type(i).rank
        if rank is None:
            raise Inexpressible
        return rank

    def known_shape(self, i: int = 0) -> Shape:
        shape = self.shape(i)
        if shape is None:
            raise Inexpressible
        return shape

    def axis(self, value: int, rank: int) -> int:
        """`value` counted from the front. Raises GraphError where there is no such axis."""
        if not -rank <= value < rank:
            raise GraphError(f"axis {value} is out of range for rank {rank}", node=self.name)
        return value % rank


class OnnxGraphBuilder(Construction):
    """The graph under construction, known values of its tensors, and images in NHWC."""

    def __init__(
        self,
        name: str,
        nodes: Mapping[str, OnnxNode],
        folder: Path | None,
        importers: Mapping[str, Importer],
        evaluators: Mapping[str, Evaluator],
        grids: Mapping[str, Grid] = MappingProxyType({}),
    ) -> None:
        super().__init__(name, {output for n in nodes.values() for output in n.outputs})
        self.images: dict[str, str] = {}
        self._folder = folder
        self._importers = importers
        self._evaluators = evaluators
        self._values: dict[Ref, str] = {}
        self._derived: dict[Hashable, str] = {}  # constants, by what they are made of
        self._computed = 0
        self._grids = dict(grids)  # of constants, by the ONNX node that makes them
        self._made: list[str] = []  # by the node that is imported

    # -- for importers ---------------------------------------------------------------------

    def make(self, name: str, op: str, inputs: tuple[str, ...], attrs: dict[str, object]) -> str:
        """A node of the IR, or its result if it only moves a constant."""
        value = self.graph.add(op, *inputs, name=name, attrs=attrs)
        self._made.append(value)
        definition, made = op_definition(op), self.graph.nodes[value]
        arrays = [self._constants.get(v) for v in inputs]
        if op in NO_MOVES or not (definition.moves or op == "cast"):
            return value
        known = [a for a in arrays if a is not None]
        size = elements(self.graph.types[value].shape)
        if len(known) < len(arrays) or size is None:
            return value
        key = (op, inputs, repr(sorted(attrs.items())))
        if key not in self._derived and not (op in VIEWS or self.allows(size)):
            return value
        self.graph.remove(value)
        return self.derived(key, lambda: run_node(made, known)[0], name)

    def derived(self, key: Hashable, compute: Callable[[], Array], name: str) -> str:
        """The constant that `key` describes, computed once for all its uses."""
        if key not in self._derived:
            self._derived[key] = self.const(compute(), name)
        return self._derived[key]

    def allows(self, size: int) -> bool:
        """Whether a constant of `size` elements may be computed; it counts towards the total."""
        fits = 0 <= size <= MAX_RESULT and self._computed + size <= MAX_TOTAL
        self._computed += size if fits else 0
        return fits

    def decoded(self, tensor: OnnxObject, node: str) -> Array:
        """The array of a graphsurgeon constant."""
        values = tensor._values
        if not isinstance(values, np.ndarray):
            return decode(values.tensor, self._folder, node)
        array: Array = widened_array(values)
        return array

    def forget(self, value: str) -> None:
        super().forget(value)
        self._derived = {key: name for key, name in self._derived.items() if name != value}
        self.images = {v: i for v, i in self.images.items() if value not in (v, i)}

    # -- nodes -----------------------------------------------------------------------------

    def add_input(self, name: str, dtype: str, shape: Shape | None) -> None:
        self._values[name, 0] = self.graph.input(name, dtype, shape)

    def value(self, ref: Ref, user: str) -> str:
        if ref not in self._values:
            raise UnsupportedError(
                f"output {ref[1]} of `{ref[0]}` is used, and not supported", node=user
            )
        return self._values[ref]

    def add(self, node: OnnxNode) -> None:
        """Import `node`, whose inputs are imported. Raises GraphError where it does not fit."""
        if (node.name, 0) in self._values:
            return
        inputs = tuple(self.value(ref, node.name) if ref else "" for ref in node.slots)
        self._made.clear()
        try:
            values, partials = self._import(OnnxSite(self, node.name, inputs, node))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise GraphError(f"this `{node.op}` is malformed: {error}", node=node.name) from None
        except MemoryError:
            raise LoadError(f"this `{node.op}` does not fit into memory", node=node.name) from None
        for index, value in values.items():
            self._values[node.name, index] = value
            self._pass_constant_through(value)
        self._mark_grid(node)
        for index, partial in enumerate(partials or ()):
            if index in values:
                self.partials.setdefault(values[index], partial)

    def call(
        self, node: OnnxNode, graph: OnnxObject, what: str, arguments: Sequence[str]
    ) -> list[str]:
        """Import a graph inside a node, under the node's name; its results."""
        check_inputs(graph, arguments, node.name)
        prefix, tensors = f"{node.name}/{what}", dict(node.captures)
        for tensor, value in zip(graph.inputs, arguments, strict=True):
            tensors[tensor.name] = (f"{prefix}/{ir_name(tensor.name)}", 0)
            self._values[tensors[tensor.name]] = value
        scope = Scope(prefix, tensors, self._held, node.name)
        for inner in body_nodes(graph, scope, lambda domain: self._version(node, domain)):
            self.add(inner)
        refs = [scope.ref(tensor) for tensor in graph.outputs]
        return [self.value(ref, node.name) for ref in refs if ref is not None]

    def _held(self, name: str, tensor: OnnxObject) -> Ref:
        """A constant that a graph inside a node holds."""
        if (name, 0) not in self._values:
            self._values[name, 0] = self.const(self.decoded(tensor, name), self.free(name))
        return name, 0

    def _version(self, node: OnnxNode, domain: str) -> int:
        return node.version if domain in ("", "ai.onnx", node.domain) else 1

    def _mark_grid(self, node: OnnxNode) -> None:
        """Mark what was made of a node with the grid of its weights; views of weights have it."""
        known = [self._grids.get(ref[0]) for ref in node.slots[:2] if ref]
        grid = next((g for g in known if g is not None), None)
        if grid is None:
            return
        if node.op in ("Identity", "Transpose"):
            self._grids[node.name] = grid
        mark(self.graph, node.op, self._made, grid)

    def _import(self, site: OnnxSite) -> tuple[dict[int, str], tuple[Partial, ...] | None]:
        """The node's values by output, and the known values of the first ones."""
        own = site.node.domain in ("", "ai.onnx")
        key = site.node.op if own else f"{site.node.domain}.{site.node.op}"
        partials = self.attempt(self._evaluators[key], site) if key in self._evaluators else None
        if partials is not None and all(p.complete for p in partials):
            found = [self.const(p.values, site.named(i)) for i, p in enumerate(partials)]
            return dict(enumerate(found)), partials
        result = self.attempt(self._importers[key], site) if key in self._importers else None
        values = dict(enumerate((result,) if isinstance(result, str) else result or ()))
        if not all(i in values for i, name in enumerate(site.node.outputs) if name):
            self._ask_for_shapes(site)
            return self._opaque(site, partials), partials
        return values, partials

    def _ask_for_shapes(self, site: OnnxSite) -> None:
        """Raise an error if an op would stay opaque due to a shape that the user can give."""
        types = self.graph.types
        unknown = [v for v in site.inputs if v and types[v].shape is None]
        if unknown and any(types[i].shape is None for i in self.graph.inputs):
            raise GraphError(f"the shape of `{unknown[0]}` is unknown", node=site.name)

    def _opaque(self, site: OnnxSite, partials: tuple[Partial, ...] | None) -> dict[int, str]:
        node, graph = site.node, self.graph
        present = tuple(v for v in site.inputs if v)
        known = [self.partials.get(v) for v in present]
        source = source_of(node, site.inputs, [graph.types[v] for v in present], self.decoded)
        arrays = [a for a in map(self.constant, present) if a is not None]
        if len(arrays) < len(present) and partials is None:
            by_definition = self._by_definition(site, source, present)
            if by_definition is not None:
                return by_definition
        if partials is not None:
            types = tuple(TensorType(p.values.dtype.name, p.values.shape) for p in partials)
        else:
            types = infer_types(source, known)
        if len(arrays) == len(present):
            few = small(types) and all(a.size <= MAX_TRACKED for a in arrays)
            if few or node.name in self._grids:  # a layer is marked if its weights are constant
                return self._computed_once(site, source, arrays)
        attrs = {"kind": node.op, "types": types, "source": source}
        name = graph.add("opaque", *present, name=node.name, attrs=attrs, outputs=len(types))
        return dict(zip(node.present, graph.nodes[name].values, strict=True))

    def _by_definition(
        self, site: OnnxSite, source: OnnxSource, present: Sequence[str]
    ) -> dict[int, str] | None:
        """The results of an op as the ops that define it; None if one of those is opaque."""
        model = by_other_ops(parsed(source.model))
        if model is None:
            return None
        before, unread = len(self.graph.nodes), dict(self.graph.unread)
        (version,) = (entry.version for entry in model.opset_import if not entry.domain)
        node = replace(site.node, version=version)
        try:
            found = self.call(node, through_graphsurgeon(model), "definition", present)
        except QGraphError:
            found = []
        made = islice(self.graph.nodes.values(), before, None)
        if not found or any(inner.op == "opaque" for inner in made):
            self._undo(before)
            self.graph.unread = unread
            return None
        self.graph.unread.pop(site.name, None)
        results = zip(site.node.present, found, strict=True)
        return {i: self.graph.add("identity", v, name=site.named(i)) for i, v in results}

    def _computed_once(
        self, site: OnnxSite, source: OnnxSource, known: Sequence[Array]
    ) -> dict[int, str]:
        """The results of an unknown op on small constants, as constants."""
        found = source.run(known)
        arrays = found if isinstance(found, tuple) else (found,)
        present = zip(site.node.present, arrays, strict=True)
        return {i: self.const(array, site.named(i)) for i, array in present}


def elements(shape: Shape | None) -> int | None:
    """The number of elements of a tensor, None if unknown."""
    if shape is None or any(d is None for d in shape):
        return None
    return math.prod(d or 0 for d in shape)


def small(types: tuple[TensorType, ...]) -> bool:
    sizes = [elements(t.shape) for t in types]
    return all(size is not None and size <= MAX_TRACKED for size in sizes)
