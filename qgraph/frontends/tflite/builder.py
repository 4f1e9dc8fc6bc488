"""The importer of nodes that stand for operators: ops of TensorFlow, and a few of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError, QGraphError, UnsupportedError
from qgraph.frontends.grids import QUANTIZED, Grid, mark, spec_of_attributes
from qgraph.frontends.partial import Partial
from qgraph.frontends.prelu import prelu
from qgraph.frontends.site import Ref
from qgraph.frontends.tf.builder import Function, GraphBuilder, Importer, Result, TfSite
from qgraph.frontends.tf.ends import needed
from qgraph.frontends.tf.node import TFNode
from qgraph.frontends.tf.ops import EVALUATORS
from qgraph.frontends.tf.ops import IMPORTERS as TF_IMPORTERS
from qgraph.frontends.tflite.control_flow import taken_branch
from qgraph.frontends.tflite.list_rows import Rows, joined_rows, sliced_rows
from qgraph.frontends.tflite.lite_node import LiteNode
from qgraph.ir.types import TensorType

CONST = "Const"
CONTROL_FLOW = ("If", "While")
MAX_NESTED = 32  # bodies inside each other


@dataclass(frozen=True)
class LiteBody:
    """A subgraph as nodes; its arguments are the names of placeholders."""

    nodes: Mapping[str, LiteNode]
    arguments: tuple[str, ...]
    results: tuple[Ref, ...]


class LiteGraphBuilder(GraphBuilder):
    """Refuses operators that it cannot express, because no other program computes them alone."""

    def __init__(
        self,
        name: str,
        nodes: Mapping[str, TFNode],
        grids: Mapping[str, Grid],
        bodies: Callable[[int], LiteBody],
    ) -> None:
        followed = {
            "Slice": lambda site: sliced_rows(site, self),
            "ConcatV2": lambda site: joined_rows(site, self),
        }
        super().__init__(name, nodes, b"", {**IMPORTERS, **followed}, EVALUATORS)
        self.rows: dict[str, Rows] = {}  # of lists
        self._grids = grids  # of constants, by node
        self._inner_grids: dict[str, Grid] = {}  # of the same constants, as bodies call them
        self._bodies = bodies  # by the number of the subgraph
        self._captured: dict[int, tuple[str, ...]] = {}  # constants of functions, by identity
        self._running: list[Function] = []
        self.refusals: dict[str, QGraphError] = {}  # of nodes that must not stay

    def function(self, name: str) -> Function:
        """The body in a subgraph. Its constants are imported once, so all steps share them."""
        if name not in self._functions:
            body = self._bodies(int(name))
            order = needed(body.nodes, body.results, body.arguments)
            inner = [n for n in order if n.name not in body.arguments and n.op != CONST]
            made = Function(body.arguments, inner, body.results)
            self._captured[id(made)] = tuple(n.name for n in order if n.op == CONST)
            for constant in self._captured[id(made)]:
                super().add(body.nodes[constant])
            self._functions[name] = made
        return self._functions[name]

    def call(
        self, function: Function, name: str, arguments: Sequence[str | None]
    ) -> tuple[str | None, ...]:
        """Import the body of a function under a name; its results."""
        if any(function is one for one in self._running) or len(self._running) >= MAX_NESTED:
            raise GraphError("a subgraph of the file runs itself, or too many others", node=name)
        for constant in self._captured[id(function)]:
            inside = f"{name}/{constant}"
            self._values[inside] = self._values[constant]
            if constant in self._grids:
                self._inner_grids[inside] = self._grids[constant]
        self._running.append(function)
        try:
            return super().call(function, name, arguments)
        finally:
            self._running.pop()

    def forget(self, value: str) -> None:
        super().forget(value)
        self.rows.pop(value, None)

    def add(self, node: TFNode) -> None:
        """Import a node, and mark it with the grid of its constant."""
        before = len(self.graph.nodes)
        super().add(node)
        made = list(islice(reversed(self.graph.nodes), max(len(self.graph.nodes) - before, 0)))
        if node.op in CONTROL_FLOW:
            return
        for name, _ in node.inputs[:2]:
            grid = self._grids.get(name) or self._inner_grids.get(name)
            if grid is not None:
                mark(self.graph, node.op, made, grid)

    def check(self) -> None:
        """Raise the refusal of an operator that an output needs."""
        for name, error in self.refusals.items():
            if name in self.graph.nodes:
                raise error

    def _opaque(self, site: TfSite, partials: Sequence[Partial] | None) -> tuple[str, ...]:
        """Arithmetic on shapes that are partly known stays until its users have read it."""
        error = self._refusal(site)
        if partials is None:
            raise error
        types = tuple(TensorType(p.values.dtype.name, p.values.shape) for p in partials)
        attrs = {"kind": site.node.op, "types": types, "source": None}
        made = self.graph.add("opaque", *site.inputs, name=site.name, attrs=attrs)
        self.refusals[made] = error
        return (made,)

    def _refusal(self, site: TfSite) -> QGraphError:
        node = site.node
        if "error" in node.attrs:
            known: QGraphError = node.attrs["error"]
            return known
        operator = node.operator if isinstance(node, LiteNode) else node.op
        unread = self.graph.unread.get(site.name)
        types = ", ".join(str(self.graph.types[value]) for value in site.inputs)
        reason = f", because of {unread}" if unread else f" on {types}" if types else ""
        return UnsupportedError(
            f"operator `{operator}` is not supported{reason}",
            node=site.name,
            hint="choose outputs that do not need it: --outputs",
        )


def _const(site: TfSite) -> Result:
    return site.const(site.node.attrs["value"]())


def _between(low: float, high: float) -> Importer:
    def importer(site: TfSite) -> Result:
        least, most = (site.const(np.asarray(v, site.type().dtype), str(v)) for v in (low, high))
        above = site.helper("above", "maximum", site.inputs[0], least)
        return site.emit("minimum", above, most)

    return importer


def _gelu(site: TfSite) -> Result:
    return site.emit("gelu", site.inputs[0], approximate=site.node.flag("approximate"))


def _hard_swish(site: TfSite) -> Result:
    return site.emit("hard_swish", site.inputs[0])


def _quantized(site: TfSite) -> Result:
    """A quantizer whose scale is kept."""
    return site.emit("quantize", site.inputs[0], spec=spec_of_attributes(site.node.attrs))


def _prelu(site: TfSite) -> Result:
    return prelu(site, site.inputs[0])


OWN: Mapping[str, Importer] = MappingProxyType(
    {
        CONST: _const,
        "If": taken_branch,
        "ReluN1To1": _between(-1, 1),
        "Relu0To1": _between(0, 1),
        "Gelu": _gelu,
        "HardSwish": _hard_swish,
        "PRelu": _prelu,
        QUANTIZED: _quantized,
    }
)
IMPORTERS: Mapping[str, Importer] = MappingProxyType({**TF_IMPORTERS, **OWN})
