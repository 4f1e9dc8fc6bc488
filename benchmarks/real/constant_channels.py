"""The channels and weights that pruning of constant channels removes, and the outputs' quality."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.real.cases import BY_MSE, Case, cifar, mobilenet_v1
from benchmarks.tables import Table
from qgraph.choices import Equalization
from qgraph.ir.graph import Graph
from qgraph.rewrite.constants import is_layer, weights_of

RATIOS = (0.0, 0.03, 0.1, 0.3)
PLAN = replace(BY_MSE, equalize=Equalization.BIASES, correct_bias=True)


def tables() -> Iterator[Table]:
    table = Table(
        "Constant channels",
        {"network": "", "ratio": "", "channels": ",d", "weights": ",d", "SQNR dB": ".1f",
         "as float": ".1%"},
        notes=[f"plan `{PLAN.spec()}`, profile graffitist-int8",
               "channels: outputs of all layers"],
    )  # fmt: skip
    for case in (cifar(), mobilenet_v1()):
        table.notes.append(case.images)
        for ratio in RATIOS:
            table.add(case.title, f"{ratio:g}" if ratio else "off", *_row(case, ratio))
    yield table


def _row(case: Case, ratio: float) -> tuple[int, int, float, float | None]:
    floating, quantized = case.built(replace(PLAN, constant_channels=ratio))
    found = case.agreement(quantized)
    return *size(floating), found.sqnr, found.top1


def size(graph: Graph) -> tuple[int, int]:
    """The numbers of output channels and of weights of all layers."""
    layers = [node for node in graph.topological() if is_layer(node)]
    shapes = [graph.types[node.name].shape or () for node in layers]
    weights = sum(weights_of(graph, node).size for node in layers)
    return sum(shape[-1] or 0 for shape in shapes), weights
