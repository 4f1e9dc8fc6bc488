"""Compare the emitted graph, as TensorFlow runs it, with the integer reference, at tolerance zero.

If an integer part starts at a float result (a logarithm, an op that is not supported), the
reference starts from TensorFlow's numbers: float ops of libraries differ in the last bit, but
integers must not differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.backends.tf.emit import emit_graph_def, tensor_names, tf_io_names
from qgraph.backends.tf.program import TFProgram
from qgraph.exact.bounds import bounds
from qgraph.exact.reference import Reference, as_float
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array, Fixed
from qgraph.quant.topology import QUANTIZERS, has_integer_form


@dataclass(frozen=True)
class TensorDifference:
    """A tensor that differs from the reference: in `count` elements, by at most `largest`."""

    name: str
    count: int
    largest: float


@dataclass(frozen=True)
class TensorAgreement:
    """`tensors` and `elements` were compared exactly; `differences` are in the graph's order.

    `float_outputs`: the outputs of float ops, with their largest difference.
    """

    tensors: int
    elements: int
    differences: tuple[TensorDifference, ...]
    float_outputs: Mapping[str, float]

    @property
    def exact(self) -> bool:
        return not self.differences


class Checker:
    """A calibrated graph and its emitted graph, which can be compared on any number of inputs."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.reference = Reference(graph)
        found = bounds(graph)
        self.program = TFProgram(emit_graph_def(graph, found))
        self.tensors = tensor_names(graph, found)
        self.io_names = tf_io_names(graph)
        self.entries = _entries(graph)

    def run(self, feeds: Mapping[str, Array]) -> TensorAgreement:
        """Compare every quantized tensor, fetched together, and every output, fetched alone.

        Fetching keeps a tensor from TensorFlow's graph optimiser: the outputs show that the graph
        as it runs in practice, optimised, is the same.
        """
        entries = dict(zip(self.entries, self._fetch(feeds, self.entries), strict=True))
        expected = self.reference.run({**feeds, **entries})
        fixed = [v for v in expected if isinstance(expected[v], Fixed) and v in self.tensors]
        found = dict(zip(fixed, self._fetch(feeds, fixed), strict=True))
        compared = [(name, array, as_float(expected[name])) for name, array in found.items()]
        floats = {}
        for public, value in self.graph.outputs.items():
            (alone,) = self._run(feeds, [self.io_names.outputs[public]])
            if isinstance(expected[value], Fixed):
                compared.append((public, alone, as_float(expected[value])))
            else:
                floats[public] = _largest(alone, as_float(expected[value]))
        differences = tuple(
            TensorDifference(name, int(np.count_nonzero(ours != wanted)), _largest(ours, wanted))
            for name, ours, wanted in compared
            if not np.array_equal(ours, wanted)
        )
        elements = sum(ours.size for _, ours, _ in compared)
        return TensorAgreement(len(compared), elements, differences, floats)

    def _fetch(self, feeds: Mapping[str, Array], values: list[str]) -> list[Array]:
        return self._run(feeds, [self.tensors[v] for v in values]) if values else []

    def _run(self, feeds: Mapping[str, Array], tensors: list[str]) -> list[Array]:
        fed = {self.io_names.inputs[name]: array for name, array in feeds.items()}
        return self.program.run(fed, tensors)


def _entries(graph: Graph) -> list[str]:
    """Float results that are inputs of quantizers."""
    integer: set[str] = set()
    entries: dict[str, None] = {}
    for node in graph.topological():
        whole = all(v in integer for v in node.inputs) and has_integer_form(node)
        if node.op == "const" or node.op in QUANTIZERS or whole:
            integer.update(node.values)
        if node.op == "quantize" and graph.producer(node.inputs[0]).op != "input":
            entries.update({v: None for v in node.inputs if v not in integer})
    return list(entries)


def _largest(found: Array, wanted: Array) -> float:
    difference = np.abs(np.asarray(found, np.float64) - np.asarray(wanted, np.float64))
    return float(difference.max(initial=0))
