"""The learner's side of a timed run, with qgraph's or with PyTorch's quantizer and actors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.broadcast.policies import drawn_weights
from benchmarks.broadcast.processes import MODULE
from qgraph.errors import RunError
from qgraph.rl.actor import ActorProgram
from qgraph.rl.broadcast import Channel, DirectPublisher, Publisher, Supervisor
from qgraph.rl.broadcast.quantizer import PACKED, SECONDS
from qgraph.rl.broadcast.weights import WeightSender

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PATIENCE = 120.0  # seconds
PICKLE_MARGIN = 4096  # pickled weights differ in size


@dataclass
class Timed:
    """A run to be timed. publish: publishes weights with a version number."""

    run: Supervisor
    publish: Callable[[Mapping[str, Any], int], None]
    blocks: str
    block_size: int
    # The number of packed blocks, and the seconds that packing took.
    packed: Callable[[], tuple[int, float]]
    kept: Any = None  # keeps memory alive that actors open

    def numbers(self, actor: int = 0) -> Any:
        return self.run.numbers(f"actor {actor}")

    def until(self, condition: Callable[[], bool], nap: float = 0.0005) -> None:
        """Wait for a condition. Raises RunError if it takes too long."""
        end = time.monotonic() + PATIENCE
        while not condition():
            self.run.check()
            if time.monotonic() > end:
                raise RunError("the benchmark does not get on")
            time.sleep(nap)


@contextmanager
def timed_run(
    kind: str, program: ActorProgram, bits: int, actors: int = 1, **settings: Any
) -> Iterator[Timed]:
    """Start a run. kind: `ours`, `direct` (the learner packs) or `torch`; actors: settings of
    each.
    """
    with Supervisor(actors + 1) as run:
        timed = RUN_KINDS[kind](run, program, bits, actors)
        common = {
            "task": "actor",
            "kind": "torch" if kind == "torch" else "ours",
            "bits": bits,
            "program": program.as_json(),
        }
        for number in range(actors):
            given = {"blocks": timed.blocks, "reader": number, "period": 1, **common, **settings}
            run.start(f"actor {number}", MODULE, given, environment=ONE_THREAD)
        yield timed


def _qgraph_run(run: Supervisor, program: ActorProgram, bits: int, actors: int) -> Timed:
    publisher = Publisher(run, program, readers=actors, bits=bits)
    return Timed(
        run,
        publisher.publish,
        publisher.settings(0).blocks,
        publisher.block_size,
        lambda: publisher.packed,
    )


def _direct_run(run: Supervisor, program: ActorProgram, bits: int, actors: int) -> Timed:
    publisher = DirectPublisher(program, readers=actors, bits=bits)
    blocks = publisher.settings(0).blocks
    return Timed(run, publisher.publish, blocks, publisher.block_size, lambda: publisher.packed)


def _torch_run(run: Supervisor, program: ActorProgram, bits: int, actors: int) -> Timed:
    from benchmarks.broadcast.torch_path import SIZE, model_of, pickled

    weights = WeightSender(program)
    size = len(pickled(program, model_of(program), drawn_weights(program), bits))
    blocks = Channel.create(size + SIZE + PICKLE_MARGIN, actors)
    given = {"bits": bits, "blocks": blocks.name, "weights": weights.channels}
    given |= {"task": "quantizer", "program": program.as_json()}
    run.start("quantizer", MODULE, given, environment=ONE_THREAD)

    def packed() -> tuple[int, float]:
        numbers = run.numbers("quantizer")
        return int(numbers[PACKED]), float(numbers[SECONDS])

    return Timed(run, weights.send, blocks.name, size, packed, kept=blocks)


RUN_KINDS = {"ours": _qgraph_run, "direct": _direct_run, "torch": _torch_run}
