"""Calibration in several processes of a Ray cluster, with the bits of one process.

Each process has the network and its own chunks of the samples, and runs the same sweep. An actor
exchanges the histograms and sums of chunks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from qgraph.distribution import install_hint
from qgraph.errors import QGraphError, RunError, UsageError, first_line
from qgraph.foreign import RayObject
from qgraph.ir.graph import Graph
from qgraph.ir.parsing import parse_graph
from qgraph.ir.printing import print_graph
from qgraph.ir.reading import spec_of, value_of
from qgraph.ir.types import Array, QuantSpec
from qgraph.parallel import over_chunks
from qgraph.quant.calibrate import Calibration, calibrate_chunks
from qgraph.quant.float_statistics import FloatStatistics, statistics_of_chunks
from qgraph.quant.peers import OwnChunks, each_with, own_chunks
from qgraph.quant.samples.data import chunk_count, chunk_inputs
from qgraph.quant.topology import QUANTIZERS
from qgraph.static.calibrator import calibrating_by

T = TypeVar("T")


@contextmanager
def ray_workers(count: int, address: str | None = None) -> Iterator[None]:
    """Split calibration inside the block over processes of a Ray cluster.

    Args:
        count: Number of processes. Each uses as many threads as its node has cores.
        address: Address of the cluster, as in `ray.init`; None starts one on this machine.

    Raises:
        UsageError: Ray is not installed, or the count is below 1.
        RunError: A process was lost.

    Examples:
        >>> from qgraph.static.ray_calibration import ray_workers
        >>> with ray_workers(4, "auto"):  # doctest: +SKIP
        ...     qgraph.quantize("model.pb", "calib.npz")
    """
    if count < 1:
        raise UsageError(f"the number of processes must be at least 1, not {count}")
    ray = _ray()
    began = not ray.is_initialized()
    if began:
        # Without an address, Ray would join any cluster that runs on this machine.
        ray.init(address=address or "local", log_to_driver=False, include_dashboard=None)
    try:
        with calibrating_by(RayCalibrator(count)):
            yield
    finally:
        if began:
            ray.shutdown()


class RayCalibrator:
    """Calibrates in `count` processes of the cluster that Ray is connected to."""

    def __init__(self, count: int) -> None:
        self.count = count

    def statistics(self, graph: Graph, data: Mapping[str, Array]) -> FloatStatistics:
        found: FloatStatistics = self._first(graph, data, "statistics", ())
        return found

    def calibrate(
        self,
        graph: Graph,
        data: Mapping[str, Array],
        options: Calibration,
        statistics: FloatStatistics | None,
    ) -> None:
        specs: Mapping[str, QuantSpec] = self._first(
            graph, data, "calibrate", (options, statistics)
        )
        for name, spec in specs.items():
            graph.set_attrs(name, spec=spec)
        graph.facts.add("calibrated")

    def _first(
        self, graph: Graph, data: Mapping[str, Array], what: str, arguments: Sequence[object]
    ) -> RayObject:
        """The result of the first process; all of them have the same."""
        ray, chunks = _ray(), chunk_inputs(graph, data)
        total = chunk_count(chunks)
        count = min(self.count, total)
        network = ray.put(packed(graph))
        exchange = ray.remote(Exchange).options(num_cpus=0).remote(count)
        run = ray.remote(_run).options(max_retries=0, scheduling_strategy="SPREAD")
        calls = [
            run.remote(network, own_chunks(chunks, i, count), total, exchange, i, count, what,
                       arguments)
            for i in range(count)
        ]  # fmt: skip
        try:
            left = list(calls)
            while left:  # the first error ends all: other processes wait for the failed one
                done, left = ray.wait(left, num_returns=1)
                ray.get(done)
            return ray.get(calls[0])
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, QGraphError):
                raise error.cause from None
            raise RunError(f"a process of Ray failed: {first_line(error.cause)}") from error
        except ray.exceptions.RayError as error:
            raise RunError(f"a process of Ray was lost: {first_line(error)}") from error
        finally:
            # Processes that wait for a failed one end with the actor. Cancelling them could end
            # this process: Ray aborts where a cancelled task completes at the same time.
            ray.kill(exchange)


# -- in the processes -------------------------------------------------------------------------


class Exchange:
    """An actor that gives each process the parts of all, in rounds."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.rounds: dict[int, dict[int, object]] = {}
        self.complete: dict[int, asyncio.Event] = {}

    async def gather(self, number: int, index: int, part: object) -> list[object]:
        """The parts of round `number`, once all processes have sent theirs."""
        parts = self.rounds.setdefault(number, {})
        complete = self.complete.setdefault(number, asyncio.Event())
        parts[index] = part
        if len(parts) < self.count:
            await complete.wait()
        complete.set()
        # Who is in this round has all parts of those before.
        self.rounds.pop(number - 1, None)
        self.complete.pop(number - 1, None)
        return [parts[i] for i in range(self.count)]


class RayPeers:
    """The processes of a calibration, for one of them."""

    def __init__(self, exchange: RayObject, index: int, count: int) -> None:
        self.exchange, self.index, self.count = exchange, index, count
        self.round = 0

    def gathered(self, part: T) -> Sequence[T]:
        self.round += 1
        found: list[T] = _ray().get(self.exchange.gather.remote(self.round, self.index, part))
        return found


Packed = tuple[str, dict[str, Array], list[str]]


def packed(graph: Graph) -> Packed:
    """A graph as its text, its constants and its facts."""
    nodes = (node for node in graph.topological() if node.op == "const")
    return print_graph(graph), {node.name: value_of(node) for node in nodes}, sorted(graph.facts)


def unpacked(found: Packed) -> Graph:
    """The graph of `packed`."""
    text, constants, facts = found
    graph = parse_graph(text, constants)
    graph.facts.update(facts)
    return graph


def _run(
    network: Packed,
    own: Mapping[str, list[Array]],
    total: int,
    exchange: RayObject,
    index: int,
    count: int,
    what: str,
    arguments: Sequence[RayObject],
) -> RayObject:
    graph, peers = unpacked(network), RayPeers(exchange, index, count)
    chunks = {name: OwnChunks(arrays, total, peers) for name, arrays in own.items()}
    if what == "statistics":
        with over_chunks(total) as each:
            return statistics_of_chunks(graph, chunks, each_with(each, peers), peers=peers)
    options, statistics = arguments
    calibrate_chunks(graph, chunks, options, statistics=statistics, peers=peers)
    quantizers = [node for node in graph.topological() if node.op in QUANTIZERS]
    return {node.name: spec_of(node) for node in quantizers} if index == 0 else None


def _ray() -> RayObject:
    try:
        import ray
    except ImportError as error:
        raise UsageError("Ray is not installed", hint=install_hint("ray", extra="ray")) from error
    return ray
