"""Time the broadcast of weights: ``python -m benchmarks.broadcast latency``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer

from benchmarks.broadcast.breakdown import breakdown
from benchmarks.broadcast.latency import latency
from benchmarks.broadcast.policies import POLICIES
from benchmarks.broadcast.scaling import scaling
from benchmarks.broadcast.transport import transport
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table

app = typer.Typer(add_completion=False, no_args_is_help=True)


def _report(tables: Iterable[Table], json_file: Path | None) -> None:
    report("benchmarks.broadcast", tables, json_file, packages=("torch", "ray", "tensorflow"))


@app.callback()
def _commands() -> None:
    """Time the broadcast of weights from a learner to its actors."""


@app.command("latency")
def latency_command(
    policy: str = "3x2048", updates: int = 40, rest: float = 0.0005, json_file: JsonFile = None
) -> None:
    """Time from the end of a learner's step to the first action with its weights."""
    _report([latency(policy, POLICIES[policy], updates, rest)], json_file)


@app.command("transport")
def transport_command(rounds: int = 40, json_file: JsonFile = None) -> None:
    """Time the transport of a block to two processes: shared memory, sockets, ZeroMQ, Ray."""
    _report([transport(rounds)], json_file)


@app.command("breakdown")
def breakdown_command(
    policy: str = "3x2048", steps: int = 1000, interval: float = 0.02, json_file: JsonFile = None
) -> None:
    """Divide an actor's time, with frequent and with rare checks for new weights."""
    _report([breakdown(policy, POLICIES[policy], steps, interval)], json_file)


@app.command("scaling")
def scaling_command(
    policy: str = "3x2048", most: int = 8, steps: int = 1000, interval: float = 0.1,
    json_file: JsonFile = None,
) -> None:  # fmt: skip
    """Time 1 to `most` actors, and fit the cost model of ActorQ's paper."""
    counts = [n for n in (1, 2, 4, 8, 16) if n <= most]
    _report(scaling(policy, POLICIES[policy], counts, steps, interval), json_file)


if __name__ == "__main__":
    app()
