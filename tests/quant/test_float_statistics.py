"""One pass over the float network serves any number of calibrations and corrections."""

from __future__ import annotations

import numpy as np
import pytest

from qgraph.errors import CalibrationError
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array, Role
from qgraph.parallel import over_chunks
from qgraph.passes import PassManager
from qgraph.quant.calibrate import Calibration, calibrate
from qgraph.quant.correct_bias import correct_biases
from qgraph.quant.float_statistics import FloatStatistics, statistics_of_chunks
from qgraph.quant.samples.data import chunk_count, chunk_inputs
from qgraph.quant.thresholds import histogram_of, range_of
from qgraph.recipes import FLOAT
from tests.helpers.evaluate import random_feeds
from tests.helpers.generators.graphs import random_graph
from tests.helpers.quantized import PROFILES, insert


def ready(seed: int, samples: int = 20) -> tuple[Graph, Graph, dict[str, Array]]:
    """A network with quantizers that have no exponent, its float twin, and samples in chunks."""
    graph = random_graph(seed, 14, "float32")
    PassManager(FLOAT).run(graph)
    floating = graph.copy()
    insert(graph, PROFILES["int8"])
    return graph, floating, random_feeds(graph, batch=samples)


@pytest.mark.parametrize("seed", [0, 2, 5, 11])
def test_statistics_are_those_of_the_float_values(seed: int) -> None:
    graph, floating, data = ready(seed)
    found = FloatStatistics.of(graph, data)
    assert found.tensors and found.means
    for name, tensor in found.tensors.items():
        source = graph.nodes[name].inputs[0]
        while source not in floating.types:
            source = graph.nodes[source].inputs[0]
        value = evaluate(floating, data, [source])[source]
        parts = np.array_split(value, 3)
        extremes = range_of(parts, name)
        assert tensor.range == extremes, name
        assert tensor.histogram or spec_of(graph.nodes[name]).role == Role.INTERNAL
        if tensor.histogram is not None:
            wanted = histogram_of(parts, *extremes)
            moved = np.abs(tensor.histogram.counts - wanted.counts).sum()
            assert moved == 0
    for name, mean in found.means.items():
        value = evaluate(floating, data, [floating.nodes[name].inputs[0]]).popitem()[1]
        wanted_mean = value.reshape(-1, value.shape[-1]).mean(axis=0, dtype=np.float64)
        assert (mean == wanted_mean).all()


@pytest.mark.parametrize("method", ["kl_j", "mse", "percentile", "max", "output"])
@pytest.mark.parametrize("seed", [2, 5])
def test_one_pass_serves_every_method(method: str, seed: int) -> None:
    graph, floating, data = ready(seed)
    known, options = FloatStatistics.of(graph, data), Calibration(method, of_float=True)
    alone, shared = graph.copy(), graph.copy()
    calibrate(alone, data, options)
    calibrate(shared, data, options, statistics=known)
    assert print_graph(alone) == print_graph(shared)
    corrected = alone.copy()
    correct_biases(corrected, floating, data)
    correct_biases(shared, floating, data, statistics=known)
    assert print_graph(corrected) == print_graph(shared) != print_graph(alone)


def test_the_number_of_threads_does_not_matter() -> None:
    graph, _, data = ready(3, samples=64)
    chunks = chunk_inputs(graph, data)
    with over_chunks(chunk_count(chunks)) as each:
        threaded = statistics_of_chunks(graph, chunks, each)
    alone = statistics_of_chunks(graph, chunks, map)
    assert threaded.tensors.keys() == alone.tensors.keys()
    for name, tensor in alone.tensors.items():
        other = threaded.tensors[name]
        assert tensor.range == other.range
        if tensor.histogram is not None and other.histogram is not None:
            assert tensor.histogram.counts.tolist() == other.histogram.counts.tolist()
    for name, mean in alone.means.items():
        assert mean.tolist() == threaded.means[name].tolist()


def test_what_is_not_finite_names_the_quantizer() -> None:
    graph = Graph("net")
    x = graph.input("x", "float32", (None, 4))
    logged = graph.add("log", x, name="logged")
    graph.outputs["y"] = graph.add("matmul", logged, graph.const(np.eye(4, dtype="f4")))
    insert(graph, PROFILES["int8"])
    with pytest.raises(CalibrationError, match="NaN or infinite"):
        FloatStatistics.of(graph, {"x": np.zeros((8, 4), np.float32)})


def test_progress_is_reported_by_chunk() -> None:
    graph, _, data = ready(0)
    reported: list[tuple[int, int]] = []
    FloatStatistics.of(graph, data, lambda done, total: reported.append((done, total)))
    assert sorted(reported) == [(1, 3), (2, 3), (3, 3)]
