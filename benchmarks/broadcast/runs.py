"""A learner's side of a run to be timed: ours, or one with PyTorch's quantizer and actors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.broadcast.policies import drawn_weights
from benchmarks.broadcast.processes import MODULE, SIZE, torch_model, torch_pickled
from qgraph.errors import RunError
from qgraph.rl.actor import ActorProgram
from qgraph.rl.broadcast import Channel, Publisher, Supervisor
from qgraph.rl.broadcast.weights import WeightLayout

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PATIENCE = 120.0  # seconds


@dataclass
class Timed:
    """publish: give out weights. packed: blocks so far, and seconds that packing them took."""

    run: Supervisor
    publish: Callable[[Mapping[str, Any], int], None]
    packed: Callable[[], tuple[int, float]]
    block_size: int

    def numbers(self, actor: int = 0) -> Any:
        return self.run.numbers(f"actor {actor}")

    def until(self, condition: Callable[[], bool], nap: float = 0.0005) -> None:
        """Raises RunError where it takes too long."""
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
    """kind: `ours` or `torch`. settings: of each actor."""
    with Supervisor(actors + 1) as run:
        make = _ours if kind == "ours" else _torch
        timed, blocks = make(run, program, bits, actors)
        for number in range(actors):
            given = {
                "task": "actor", "kind": kind, "bits": bits, "program": program.as_json(),
                "blocks": blocks, "reader": number, "period": 1, **settings,
            }  # fmt: skip
            run.start(f"actor {number}", MODULE, given, environment=ONE_THREAD)
        yield timed


def _ours(run: Supervisor, program: ActorProgram, bits: int, actors: int) -> tuple[Timed, str]:
    publisher = Publisher(run, program, readers=actors, bits=bits)
    timed = Timed(run, publisher.publish, lambda: publisher.packed, publisher.block_size)
    return timed, publisher.settings(0)["blocks"]


def _torch(run: Supervisor, program: ActorProgram, bits: int, actors: int) -> tuple[Timed, str]:
    layout = WeightLayout(program)
    weights = Channel.create(layout.size, 1)
    writer = weights.writer()
    size = len(torch_pickled(program, torch_model(program), drawn_weights(program), bits))
    blocks = Channel.create(size + SIZE + 4096, actors)
    given = {
        "task": "quantizer", "bits": bits, "program": program.as_json(),
        "weights": weights.name, "blocks": blocks.name,
    }  # fmt: skip
    run.start("quantizer", MODULE, given, environment=ONE_THREAD)
    numbers = run.numbers("quantizer")

    def publish(values: Mapping[str, Any], version: int) -> None:
        layout.write(values, writer.room())
        writer.publish(version)

    timed = Timed(run, publish, lambda: (int(numbers[0]), float(numbers[1])), size)
    timed.kept = (weights, blocks)  # type: ignore[attr-defined]
    return timed, blocks.name
