"""Weights of 4 bits by the number of calibration images: six families and `cifar_10_model`.

Networks are quantized by effort `default`, without labels; accuracy is measured on test images.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks import assets
from benchmarks.families.data import Split, cifar10, fashion_mnist
from benchmarks.families.networks import FAMILIES
from benchmarks.families.train import path_of
from benchmarks.real.measure import same_class
from benchmarks.real.resumed import Part, resumed
from benchmarks.tables import Table
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.choices import Effort
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array

PROFILE = "graffitist-int4"
COUNTS = (512, 2_048, 8_192)
CIFAR = "cifar_10_model"


def tables() -> Iterator[Table]:
    """One table: a row for each network and number of images, then means of the families."""
    table = Table(
        "Weights of 4 bits by calibration images",
        {"network": "", "images": ",", "accuracy": ".2%", "over float": "+.2f",
         "standard error": ".2f", "as float": ".2%", "seconds": ".0f", "plan": ""},
        notes=[f"{PROFILE}: weights of 4 bits, those of the first and the last layer of 8; effort "
               "default",
               "10,000 test images; the standard error is that of the difference, by the images "
               "that only one of both networks has right"],
    )  # fmt: skip
    parts: dict[str, Callable[[], Part]] = {
        **{name: partial(_part, name, fashion_mnist) for name in FAMILIES},
        CIFAR: partial(_part, CIFAR, cifar10),
    }
    rows = [row for part in resumed("images-at-4-bits", parts) for row in part.rows]
    for row in rows:
        table.add(*row)
    for count in COUNTS:
        over, errors = np.array([r[3:5] for r in rows if r[0] in FAMILIES and r[1] == count]).T
        table.notes.append(
            f"mean of the six families with {count:,} images: {over.mean():+.2f} ± "
            f"{np.sqrt((errors**2).sum()) / len(errors):.2f} over float"
        )
    yield table


def _part(name: str, data: Callable[[], Split]) -> Part:
    return Part([*_rows(name, data())], "")


def _rows(name: str, data: Split) -> Iterator[list[Any]]:
    model = load(assets.cifar10_network() if name == CIFAR else path_of(name))
    labels, wanted = data.test.labels, _scores(model, data.test.images)
    right = wanted.argmax(1) == labels
    for count in COUNTS:
        start = time.perf_counter()
        made = quantize(model, data.training.images[:count], profile=PROFILE, effort=Effort.DEFAULT)
        seconds = time.perf_counter() - start
        found = _scores(made.graph, data.test.images)
        change = (found.argmax(1) == labels).astype(float) - right
        row: list[Any] = [
            name, count, float((found.argmax(1) == labels).mean()), 100 * float(change.mean()),
            100 * float(change.std() / np.sqrt(len(change))), same_class(found, wanted), seconds,
            made.facts.choice.plan_spec,
        ]  # fmt: skip
        print(row, flush=True)
        yield row


def _scores(graph: Graph, images: Array) -> Array:
    (name,), (output,) = graph.inputs, graph.outputs
    return TFProgram(emit_graph_def(graph)).predict(name, images, output, 500)
