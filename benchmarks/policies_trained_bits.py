"""Train policies in few bits, beside float: ``python -m benchmarks.policies_trained_bits run``.

Each run is `qgraph rl train --in-process` in a separate directory, with the same steps, and the
second half of them in few bits. Complete runs are skipped, so the benchmark can be stopped and
started again. ``python -m benchmarks.policies_trained_bits report`` plays the policies:

- trained: the policy of the run: float for 32 bits, else the static policy that it wrote;
- afterwards: the float policy of the same seed, calibrated as a static policy with as many bits.

Returns are means over seeds, +- the standard error over seeds. Both ways play the same episodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import result
from benchmarks.result import JsonFile
from benchmarks.tables import Table
from benchmarks.training_runs import (
    Folder,
    chosen,
    last_line,
    mean_and_error,
    rows_of,
    side_by_side,
)  # fmt: skip
from qgraph.ir.types import Array
from qgraph.rl.environments import make
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy, load_policy, pack, read_policy
from qgraph.rl.policy.about import about, head_for
from qgraph.rl.policy.floats import run as run_float
from qgraph.rl.policy.play import Outputs, play, watch

FLOAT = 32
FIRST_SEED, OBSERVATIONS = 5000, 2000


@dataclass(frozen=True)
class Task:
    """A task and its algorithm, with options that are known to work."""

    name: str
    algorithm: str
    environment: str
    steps: int
    options: tuple[str, ...] = ()


SMALL = ("--hidden-sizes", "64,64")
CRITICS = ("--critic-hidden-sizes", "64,64")
FASTER = ("--batch-size", "128", "--samples-per-insert", "128")
TASKS = {
    task.name: task
    for task in (
        Task("pendulum", "sac", "Pendulum-v1", 8_000, (*SMALL, *CRITICS, *FASTER)),
        Task("cartpole", "dqn", "CartPole-v1", 20_000, SMALL),
    )
}

app = typer.Typer(add_completion=False, no_args_is_help=True)
Names = Annotated[str, typer.Option("--tasks", metavar="NAMES", help="Comma separated.")]
Widths = Annotated[str, typer.Option("--bits", metavar="BITS", help="Comma separated.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, metavar="N")]
RUNS = Path("runs/policies_trained_bits")
ALL, BITS = ",".join(TASKS), "32,8,4,3,2"


@app.command()
def run(
    out: Folder = RUNS,
    tasks: Names = ALL,
    bits: Widths = BITS,
    seeds: Seeds = 3,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Runs side by side.")] = 1,
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Steps of each run; few for a trial.")
    ] = None,
) -> None:
    """Make the missing runs, seed by seed."""
    waiting = [
        (folder_of(out, task, width, seed), command(task, width, seed, steps))
        for seed in range(seeds)
        for task in chosen(tasks, TASKS)
        for width in map(int, bits.split(","))
    ]
    side_by_side(
        ((folder, said) for folder, said in waiting if not is_complete(folder)),
        jobs,
        lambda folder, _: print(f"{folder.name}: {last_line(folder)}", flush=True),
    )


def command(task: Task, bits: int, seed: int, steps: int | None) -> list[str]:
    said = ["--algo", task.algorithm, "--env", task.environment, "--seed", str(seed)]
    said += ["--steps", str(steps or task.steps), "--in-process", *task.options]
    return said + ([] if bits == FLOAT else ["--train-bits", str(bits)])


def folder_of(out: Path, task: Task, bits: int, seed: int) -> Path:
    return out / f"{task.name}-{bits}-{seed}"


def is_complete(folder: Path) -> bool:
    """Whether a run has reached its last step, which is evaluated."""
    if not (folder / "progress.csv").exists():
        return False
    rows = rows_of(folder / "progress.csv")
    wanted = json.loads((folder / "options.json").read_text())["steps"]
    return bool(rows) and rows[-1]["actor_steps"] >= wanted


@app.command()
def report(
    out: Folder = RUNS,
    tasks: Names = ALL,
    bits: Widths = BITS,
    seeds: Seeds = 3,
    episodes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Episodes of each policy.")
    ] = 50,
    json_file: JsonFile = None,
) -> None:
    """Play the policies of the existing runs."""
    found: set[int] = set()

    def tables() -> Iterator[Table]:
        made = Table("Trained in few bits", COLUMNS)
        for task in chosen(tasks, TASKS):
            for width in map(int, bits.split(",")):
                there = [s for s in range(seeds) if is_complete(folder_of(out, task, width, s))]
                found.update(there)
                if there:
                    made.add(*_row(out, task, width, there, episodes))
        yield made

    result.report("benchmarks.policies_trained_bits", tables(), json_file, found)


COLUMNS = {
    "task": "",
    "bits": "d",
    "seeds": "d",
    "trained": ".1f",
    "afterwards": ".1f",
    "trained, worst seed": ".1f",
}


def _row(
    out: Path, task: Task, bits: int, seeds: Sequence[int], episodes: int
) -> tuple[object, ...]:
    trained = [_returned(folder_of(out, task, bits, s), task, bits, episodes, True) for s in seeds]
    after = None
    if bits != FLOAT:
        floats = [s for s in seeds if is_complete(folder_of(out, task, FLOAT, s))]
        after = _mean(
            [_returned(folder_of(out, task, FLOAT, s), task, bits, episodes, False) for s in floats]
        )
    name = f"{task.algorithm}, {task.environment}"
    return name, bits, len(seeds), _mean(trained), after, min(trained)


def _mean(returns: Sequence[float]) -> list[float] | float | None:
    """The mean over seeds with its standard error; of a single seed without one."""
    return returns[0] if len(returns) == 1 else mean_and_error(returns)


def _returned(folder: Path, task: Task, bits: int, episodes: int, trained: bool) -> float:
    """The mean return of the policy of a run, or of its float policy quantized afterwards."""
    way = "trained" if trained else f"afterwards-{bits}"
    kept = folder / f"returns-{way}-{episodes}.json"
    if not kept.exists():
        if trained and bits != FLOAT:
            policy = load_policy(folder / "policy.qpol")
            assert policy.head is not None
            outputs: Outputs = policy.outputs
            head = policy.head
        else:
            outputs, head = _float_policy(folder / "policy.pb", task, None if trained else bits)
        seeds = range(FIRST_SEED, FIRST_SEED + episodes)
        mean = play(task.environment, outputs, head, seeds).mean
        kept.write_text(json.dumps(mean))
    return float(json.loads(kept.read_text()))


def _float_policy(path: Path, task: Task, bits: int | None) -> tuple[Outputs, Head]:
    """A float policy, or its static form calibrated on what it sees."""
    network, facts = read_policy(path), about(path)
    (name,) = network.program.outputs
    with closing(make(task.environment)) as environment:
        size = network.program.size(name)
        head = head_for(environment.actions, size, facts.head, facts.high, facts.exported_head)

    def outputs(observations: Array) -> Array:
        return run_float(network.program, network.weights, observations)[name]

    if bits is None:
        return outputs, head
    seen = watch(task.environment, outputs, head, OBSERVATIONS)
    return Policy(pack(network, head, bits, "static", seen)).outputs, head


if __name__ == "__main__":
    app()
