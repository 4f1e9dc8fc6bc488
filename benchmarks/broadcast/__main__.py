"""python -m benchmarks.broadcast latency"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from benchmarks.broadcast.breakdown import breakdown
from benchmarks.broadcast.latency import latency
from benchmarks.broadcast.policies import POLICIES
from benchmarks.broadcast.scaling import scaling
from benchmarks.broadcast.transport import transport
from benchmarks.tables import Table
from qgraph.cli.console import console

app = typer.Typer(add_completion=False, no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="For machines.")]


def _show(table: Table, as_json: bool) -> None:
    if as_json:
        print(json.dumps(table.to_json()))
    else:
        console().print(table.rich())
        print(table.markdown())


@app.callback()
def _commands() -> None:
    """Time the way of weights from a learner to its actors."""


@app.command("latency")
def latency_command(
    policy: str = "3x2048", updates: int = 40, rest: float = 0.0005, as_json: Json = False
) -> None:
    """From a learner's step to the first action by its weights."""
    _show(latency(policy, POLICIES[policy], updates, rest), as_json)


@app.command("transport")
def transport_command(rounds: int = 40, as_json: Json = False) -> None:
    """A block to two processes: shared memory, sockets, ZeroMQ, Ray."""
    _show(transport(rounds), as_json)


@app.command("breakdown")
def breakdown_command(
    policy: str = "3x2048", steps: int = 1000, interval: float = 0.02, as_json: Json = False
) -> None:
    """Break an actor's time down, with many looks at new weights and with few."""
    for table in breakdown(policy, POLICIES[policy], steps, interval):
        _show(table, as_json)


@app.command("scaling")
def scaling_command(
    policy: str = "3x2048", most: int = 8, steps: int = 1000, interval: float = 0.1,
    as_json: Json = False,
) -> None:  # fmt: skip
    """1 to `most` actors, and the cost model of ActorQ's paper."""
    counts = [n for n in (1, 2, 4, 8, 16) if n <= most]
    for table in scaling(policy, POLICIES[policy], counts, steps, interval):
        _show(table, as_json)


if __name__ == "__main__":
    app()
