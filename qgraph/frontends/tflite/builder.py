"""The importer of nodes that stand for operators: ops of TensorFlow, and a few of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from types import MappingProxyType

import numpy as np

from qgraph.errors import QGraphError, UnsupportedError
from qgraph.frontends.builder import GraphBuilder, Importer, Result, TfSite
from qgraph.frontends.grids import QUANTIZED, Grid, mark, spec_of_attributes
from qgraph.frontends.partial import Partial
from qgraph.frontends.prelu import prelu
from qgraph.frontends.tf_node import TFNode
from qgraph.frontends.tf_ops import EVALUATORS
from qgraph.frontends.tf_ops import IMPORTERS as TF_IMPORTERS
from qgraph.frontends.tflite.lite_node import LiteNode
from qgraph.ir.types import TensorType

NO_GRIDS: Mapping[str, Grid] = MappingProxyType({})


class LiteGraphBuilder(GraphBuilder):
    """Refuses operators that it cannot express, because no other program computes them alone."""

    def __init__(
        self, name: str, nodes: Mapping[str, TFNode], grids: Mapping[str, Grid] = NO_GRIDS
    ) -> None:
        super().__init__(name, nodes, b"", IMPORTERS, EVALUATORS)
        self._grids = grids  # of constants, by node
        self.refusals: dict[str, QGraphError] = {}  # of nodes that must not stay

    def add(self, node: TFNode) -> None:
        """Import a node, and mark it with the grid of its constant."""
        before = len(self.graph.nodes)
        super().add(node)
        made = list(islice(reversed(self.graph.nodes), max(len(self.graph.nodes) - before, 0)))
        for name, _ in node.inputs[:2]:
            if name in self._grids:
                mark(self.graph, node.op, made, self._grids[name])

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
        "Const": _const,
        "ReluN1To1": _between(-1, 1),
        "Relu0To1": _between(0, 1),
        "Gelu": _gelu,
        "HardSwish": _hard_swish,
        "PRelu": _prelu,
        QUANTIZED: _quantized,
    }
)
IMPORTERS: Mapping[str, Importer] = MappingProxyType({**TF_IMPORTERS, **OWN})
