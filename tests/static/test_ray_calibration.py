"""Calibration that several processes share has the bits of one process."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import qgraph
from qgraph.choices import CalibrationMethod
from qgraph.errors import CalibrationError, UsageError
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.pipelines import USUAL
from qgraph.quant.calibrate import Calibration, calibrate, calibrate_chunks
from qgraph.quant.float_statistics import FloatStatistics, statistics_of_chunks
from qgraph.quant.peers import OwnChunks, each_with, interleaved, own_chunks
from qgraph.quant.plan import Plan
from qgraph.quant.profile import load_profile
from qgraph.quant.samples.data import CHUNK, chunk_count, chunk_inputs
from qgraph.quant.topology import QUANTIZERS
from qgraph.rewrite.trace import Trace
from qgraph.static.preparations import Preparations
from qgraph.static.ray_calibration import RayCalibrator, ray_workers
from tests.helpers.cli import run
from tests.helpers.trained import images, trained

SAMPLES = 5 * CHUNK + 3  # the last chunk is smaller, and processes have different numbers of them


class Threads:
    """Peers in threads of one process."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.parts: list[Any] = [None] * count
        self.barrier = threading.Barrier(count)
        self.exchanges = 0

    def run(self, function: Callable[[Any], Any]) -> list[Any]:
        """Results of `function`, called with each peer."""
        with ThreadPoolExecutor(self.count) as pool:
            return [*pool.map(function, [_Thread(self, i) for i in range(self.count)])]


class _Thread:
    def __init__(self, threads: Threads, index: int) -> None:
        self.threads, self.index, self.count = threads, index, threads.count

    def gathered(self, part: Any) -> Sequence[Any]:
        self.threads.parts[self.index] = copy.deepcopy(part)  # as between processes
        self.threads.barrier.wait(60)
        found = list(self.threads.parts)
        self.threads.barrier.wait(60)
        self.threads.exchanges += 1
        return found


def prepared(method: str) -> Graph:
    """A graph with quantizers that have no exponents yet."""
    plan, profile = Plan(method=CalibrationMethod(method)), load_profile("graffitist-int8")
    known = Preparations(trained(), USUAL)
    return known.prepared(profile, plan, {"image": images(8)}, Trace())[1]


def exponents(graph: Graph) -> dict[str, object]:
    quantizers = [node for node in graph.topological() if node.op in QUANTIZERS]
    return {node.name: spec_of(node) for node in quantizers}


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("of_float", [False, True])
@pytest.mark.parametrize("method", [*CalibrationMethod])
def test_peers_find_the_exponents_of_one_process(method, of_float, count) -> None:
    data, options = {"image": images(SAMPLES)}, Calibration(method, of_float=of_float)
    alone = prepared(method)
    calibrate(alone, data, options)

    def run(peers) -> dict[str, object]:
        graph = prepared(method)
        chunks = chunk_inputs(graph, data)
        own = own_chunks(chunks, peers.index, count)
        total = chunk_count(chunks)
        spread = {name: OwnChunks(arrays, total, peers) for name, arrays in own.items()}
        calibrate_chunks(graph, spread, options, peers=peers)
        return exponents(graph)

    threads = Threads(count)
    for found in threads.run(run):
        assert found == exponents(alone)
    assert threads.exchanges > 0


def test_statistics_are_those_of_one_process() -> None:
    graph, data = prepared("kl_j"), {"image": images(SAMPLES)}
    alone = FloatStatistics.of(graph, data)
    chunks = chunk_inputs(graph, data)

    def run(peers) -> FloatStatistics:
        own = own_chunks(chunks, peers.index, peers.count)
        total = chunk_count(chunks)
        spread = {name: OwnChunks(arrays, total, peers) for name, arrays in own.items()}
        return statistics_of_chunks(graph, spread, each_with(map, peers), peers=peers)

    for found in Threads(2).run(run):
        assert_same(found, alone)


def assert_same(found: FloatStatistics, wanted: FloatStatistics) -> None:
    assert found.tensors.keys() == wanted.tensors.keys()
    for name, tensor in wanted.tensors.items():
        assert found.tensors[name].range == tensor.range
        mine, theirs = found.tensors[name].histogram, tensor.histogram
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            np.testing.assert_array_equal(mine.counts, theirs.counts)
            assert (mine.zeros, mine.power) == (theirs.zeros, theirs.power)
    for name, mean in wanted.means.items():
        np.testing.assert_array_equal(found.means[name], mean)


def test_items_are_interleaved() -> None:
    assert interleaved([[0, 3, 6], [1, 4], [2, 5]]) == [*range(7)]
    assert interleaved([[], []]) == []


# -- Ray --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.extra
def test_a_cluster_that_is_named_elsewhere_is_not_joined(monkeypatch) -> None:
    ray = pytest.importorskip("ray", reason="pip install 'qgraph-compiler[ray]'")
    assert not ray.is_initialized()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # an unused port
    with ray_workers(1):
        assert ray.is_initialized()
    assert not ray.is_initialized()


@pytest.fixture(scope="module")
def cluster():
    """Ray on this machine, in two processes."""
    ray = pytest.importorskip("ray", reason="pip install 'qgraph-compiler[ray]'")
    # Not the cluster of another test, which ends while this one needs it.
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False,
             object_store_memory=100 << 20)  # fmt: skip
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.extra
def test_a_network_calibrated_on_ray_has_the_same_bits(cluster, monkeypatch) -> None:
    network, data, calls = trained(), images(SAMPLES), []
    first = RayCalibrator._first

    def counted(self, graph, data, what, arguments):
        calls.append(what)
        return first(self, graph, data, what, arguments)

    monkeypatch.setattr(RayCalibrator, "_first", counted)
    for effort in ("plain", "fast"):
        alone = qgraph.quantize(network, data, effort=effort)
        with ray_workers(2):
            shared = qgraph.quantize(network, data, effort=effort)
        assert "calibrate" in calls
        calls.clear()
        assert exponents(shared.graph) == exponents(alone.graph)
        for node in alone.graph.topological():
            if node.op == "const":
                mine, theirs = (g.constant(node.name) for g in (shared.graph, alone.graph))
                np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
@pytest.mark.extra
def test_an_error_of_a_process_is_that_of_one_process(cluster) -> None:
    """Weights so large that values are infinite."""
    network = trained()
    large = network.constant("w1")
    network.set_attrs("w1", value=np.full_like(large, 3e38))
    with pytest.raises(CalibrationError) as alone:
        qgraph.quantize(network, images(SAMPLES), effort="plain")
    for _ in range(5):  # Ray aborts the program if a process ends while it is cancelled
        with ray_workers(2), pytest.raises(CalibrationError) as shared:
            qgraph.quantize(network, images(SAMPLES), effort="plain")
        assert str(shared.value) == str(alone.value)


def test_the_address_needs_a_number_of_workers(tmp_path) -> None:
    done = run("quantize", tmp_path / "net.pb", "--ray", "auto")
    assert done.code == 2 and "--ray is for --ray-workers" in done.err


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"), ray_workers(0):
        pass
