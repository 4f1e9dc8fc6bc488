"""Compress policies by more than fewer bits: ``python -m benchmarks.compression run``.

Each run is `qgraph rl train --algo impala` with a chain of links, in a separate directory. Complete
runs are skipped. ``python -m benchmarks.compression report`` makes a table and a figure of the
existing runs:

- actor: microseconds of inference per step during the run, beside all its other processes, and the
  ratio to a run without compression; `inference` is its share of the actors' own time, `of wall`
  its share of all their time, which includes waiting for the learner (figure 1);
- alone: the same for the run's best policy, compressed again, without other processes;
- block: bytes of a broadcast, with the compressor of the beginning and that of the end;
- KL: the divergence between the learner's policy and the compressed one, as a mean over the run;
- return: the best mean of three consecutive evaluations of the full policy; `of actors` is the
  mean return of the actors in the last quarter of the run.

``python -m benchmarks.compression networks`` times the four networks of AcceRL's table 6.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import result
from benchmarks.actor_speed import observations, turns
from benchmarks.compression_networks import networks
from benchmarks.result import JsonFile
from benchmarks.tables import Table, merged
from benchmarks.training_runs import (
    WINDOW,
    Folder,
    Groups,
    Tasks,
    chosen,
    column,
    curve,
    finite_result,
    is_complete,
    last_line,
    mean_and_error,
    rows_of,
    side_by_side,
    smooth,
)
from qgraph.foreign import PlotObject
from qgraph.ir.types import Array
from qgraph.quiet import import_tensorflow_quietly
from qgraph.rl.compress import ChainPolicy, Compressor
from qgraph.rl.head import Head
from qgraph.rl.monitor.log import LINES, read_log

RUNS = Path("runs/compression")
ACTIVE = ("acting", "choosing", "environment", "looking")  # the parts of an actor's own time
PARTS = (*ACTIVE, "waiting")


@dataclass(frozen=True)
class Task:
    """A task, IMPALA's options for it, and a network to distill into.

    Layers are so wide that actors are the bottleneck of a run. gap: the difference of returns at
    which the monitor reacts.
    """

    name: str
    environment: str
    options: tuple[str, ...]
    gap: float
    hidden: str = "512,512"
    student: str = "64-64"

    @property
    def places(self) -> int:
        """The number of decimal places of returns in the table."""
        return 1 if self.gap <= 1 else 0


@dataclass(frozen=True)
class Variant:
    """A chain ("" for none) and a monitor, with `{student}` and `{gap}` of the task."""

    name: str
    chain: str
    monitor: str = "watch"


# A layer norm keeps a wide policy stable. The entropy has a smaller weight where rewards are small.
STEADY = ("--actors", "2", "--layer-norm", "--evaluate-every", "60")
SMALL = ("--reward-scale", "0.05", "--entropy", "0.005")
TASKS = {
    task.name: task
    for task in (
        Task("cartpole", "CartPole-v1", (*SMALL, "--steps", "100000"), 20),
        Task("acrobot", "Acrobot-v1", (*SMALL, "--steps", "100000"), 10),
        Task("lunar", "LunarLander-v3", (*SMALL, "--steps", "400000"), 20),
        Task(
            "breakout", "MinAtar/Breakout-v1", ("--steps", "300000"), 1, "512", "8x3x1-64",
        ),
        # AcceRL's original network and its smallest one. The run measures speed; it is too short to
        # learn.
        Task(
            "pong", "ALE/Pong-v5",
            ("--steps", "20000", "--evaluate-every", "100", "--episodes", "1"), 1, "2048", "net3",
        ),
    )
}  # fmt: skip
NONE = Variant("float32", "")
GROUPS: dict[str, tuple[Variant, ...]] = {
    "links": (
        NONE,
        Variant("int8", "quantize(8)"),
        Variant("pruned", "prune(0.5)"),
        Variant("distilled", "distill({student})"),
        Variant("pruned, int8", "prune(0.5)|quantize(8)"),
        Variant("distilled, int8", "distill({student})|quantize(8)"),
        # The rest of the policy is trained, each time from the start.
        Variant("pruned, taught", "prune(0.5)|distill(steps=40)"),
        Variant("pruned, taught, int8", "prune(0.5)|distill(steps=40)|quantize(8)"),
    ),
    # The weight of the critic's values in the loss of a student, which learns them with its
    # actions.
    "values": tuple(
        Variant(f"values count {value:g}", f"distill({{student}}, value={value})|quantize(8)")
        for value in (1.0, 0.1, 0.01, 0.0)
    ),
    "monitor": (
        NONE,
        Variant("pruned 95 %", "prune(0.95)|quantize(8)"),
        Variant("pruned 95 %, watched", "prune(0.95)|quantize(8)", "reward_gap:{gap:g}"),
    ),
}

app = typer.Typer(add_completion=False, no_args_is_help=True)
app.command()(networks)
ALL_TASKS, ALL_GROUPS = ",".join(TASKS), ",".join(GROUPS)


@app.command()
def run(
    out: Folder = RUNS,
    tasks: Tasks = ALL_TASKS,
    groups: Groups = ALL_GROUPS,
    seeds: Annotated[int, typer.Option(min=1, metavar="N")] = 3,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Runs side by side.")] = 1,
    steps: Annotated[int | None, typer.Option(min=1, metavar="N", help="Of each run.")] = None,
) -> None:
    """Make the missing runs, seed by seed."""
    waiting = []
    for seed in range(seeds):
        for task in chosen(tasks, TASKS):
            for variant in _variants(groups):
                folder = folder_of(out, task, variant, seed)
                if not is_complete(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                    waiting.append((folder, command(task, variant, seed, steps)))
    side_by_side(
        waiting, jobs, lambda folder, _: print(f"{folder.name}: {last_line(folder)}", flush=True)
    )


def command(task: Task, variant: Variant, seed: int, steps: int | None) -> list[str]:
    said = ["--algo", "impala", "--env", task.environment, "--seed", str(seed), "--energy"]
    said += ["--hidden", task.hidden, "--correct", "vtrace,is", *STEADY, *task.options]
    if variant.chain:
        said += ["--compress", chain_of(task, variant), "--monitor", monitor_of(task, variant)]
    else:
        said += ["--actor-bits", "32"]
    return [*said, *(["--steps", str(steps)] if steps else [])]


def chain_of(task: Task, variant: Variant) -> str:
    return variant.chain.format(student=task.student)


def monitor_of(task: Task, variant: Variant) -> str:
    return variant.monitor.format(gap=task.gap)


def folder_of(out: Path, task: Task, variant: Variant, seed: int) -> Path:
    plain = "".join(c if c.isalnum() else "-" for c in variant.name)
    return out / f"{task.name}-{plain}-{seed}"


def complete(out: Path, task: Task, variant: Variant) -> list[Path]:
    """The complete runs of all seeds."""
    name = folder_of(out, task, variant, 0).name.removesuffix("0")
    return [
        folder
        for folder in sorted(out.glob(f"{name}*"))
        if folder.name.removeprefix(name).isdigit() and is_complete(folder)
    ]


def _variants(groups: str) -> list[Variant]:
    return list(dict.fromkeys(v for group in chosen(groups, GROUPS) for v in group))


# -- results of the runs ------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """The results of one run; `curve` has steps and returns of its evaluations."""

    parts: Mapping[str, float]  # microseconds per step, by PARTS
    seconds: float  # of the whole run without evaluations
    kl: float | None
    best: float
    of_actors: float
    curve: tuple[Array, Array]

    @property
    def acting(self) -> float:
        return self.parts["acting"]

    @property
    def inference(self) -> float:
        return self.acting / sum(self.parts[part] for part in ACTIVE)

    @property
    def of_wall(self) -> float:
        return self.acting / sum(self.parts.values())


def read_run(folder: Path) -> Run:
    rows = rows_of(folder / "progress.csv")
    last: dict[float, Any] = {row["actor"]: row for row in rows_of(folder / "actors.csv")}
    took = {part: sum(row[part] for row in last.values()) for part in PARTS}
    steps = sum(row["steps"] for row in last.values())
    looks = read_log(folder / LINES) if (folder / LINES).exists() else []
    seen = [
        row.indicators.kl_mean for row in looks if row.indicators.kl_mean == row.indicators.kl_mean
    ]
    late = column(rows, "actors_return")[-max(1, len(rows) // 4) :]
    return Run(
        {part: 1e6 * seconds / steps for part, seconds in took.items()},
        float(rows[-1]["seconds"]),
        float(np.mean(seen)) if seen else None,
        float(smooth(rows)[min(WINDOW, len(rows)) - 1 :].max()),
        float(np.nanmean(late)),
        (column(rows, "actor_steps"), smooth(rows)),
    )


def compressed(folder: Path, chain: str) -> ChainPolicy:
    """The broadcast policy: the run's best policy, compressed by its chain and packed."""
    from qgraph.rl.policy import read_policy

    network = read_policy(folder / "policy.pb")
    seen = np.random.default_rng(0).normal(size=(8, *network.program.shape)).astype(np.float32)
    policy = ChainPolicy(network.program, network.weights, Head("categorical"))
    return Compressor.parse(chain or "quantize(32)").pack()(policy, seen)


def block_bytes(policy: ChainPolicy) -> int:
    """The size of a packed policy."""
    assert policy.block is not None
    return len(policy.block)


def alone_times(policies: Mapping[Variant, ChainPolicy]) -> dict[Variant, float]:
    """Microseconds per step of each policy, one observation at a time, in turns."""
    calls = {
        variant: partial(policy.actor(), observations(policy.program, 1))
        for variant, policy in policies.items()
    }
    return {variant: float(np.median(found)) for variant, found in turns(calls).items()}


@app.command()
def report(
    out: Folder = RUNS,
    tasks: Tasks = ALL_TASKS,
    groups: Groups = ALL_GROUPS,
    json_file: JsonFile = None,
    figure: Annotated[Path | None, typer.Option(metavar="PNG", help="Learning curves.")] = None,
) -> None:
    """Make a table for each task, and a figure, of the existing runs."""
    import_tensorflow_quietly()
    found = {
        (task.name, variant): [read_run(folder) for folder in complete(out, task, variant)]
        for task in chosen(tasks, TASKS)
        for variant in _variants(groups)
    }
    found = {key: runs for key, runs in found.items() if runs}
    if not found:
        raise typer.BadParameter(f"{out} has no complete run")
    if figure is not None:
        draw(found, figure)
    tables = ((n, _table(TASKS[n], found, out)) for n in dict.fromkeys(name for name, _ in found))
    made = merged("IMPALA with compressed actors", "task", tables)
    seeds = range(max(map(len, found.values())))
    result.report("benchmarks.compression", [made], json_file, seeds)


def _table(task: Task, found: dict[tuple[str, Variant], list[Run]], out: Path) -> Table:
    table = Table(
        f"{task.name}, IMPALA, policy of {task.hidden}",
        {"actors' policy": "", "chain": "", "seeds": "", "block, kB": ",.0f", "actor, us": ".1f",
         "times less": ".2f", "alone, us": ".1f", "times less alone": ".2f", "inference": ".0%",
         "of wall": ".1%", "run, s": ".0f", "KL": ".2g", "return": ",.1f", "of actors": ",.1f"},
    )  # fmt: skip
    of_task = {variant: runs for (name, variant), runs in found.items() if name == task.name}
    policies = {
        variant: compressed(folder_of(out, task, variant, 0), chain_of(task, variant))
        for variant in of_task
    }
    alone = alone_times(policies)
    acting = {v: float(np.median([run.acting for run in runs])) for v, runs in of_task.items()}
    for variant, runs in of_task.items():
        diverged = [run.kl for run in runs if run.kl is not None]
        monitor = f", {monitor_of(task, variant)}" if variant.monitor != "watch" else ""
        table.add(
            variant.name, f"{chain_of(task, variant) or '-'}{monitor}", len(runs),
            block_bytes(policies[variant]) / 1e3,
            acting[variant], acting[NONE] / acting[variant] if NONE in acting else None,
            alone[variant], alone[NONE] / alone[variant] if NONE in alone else None,
            float(np.mean([run.inference for run in runs])),
            float(np.mean([run.of_wall for run in runs])),
            float(np.median([run.seconds for run in runs])),
            float(np.mean(diverged)) if diverged else None,
            finite_result(mean_and_error([run.best for run in runs])),
            finite_result(mean_and_error([run.of_actors for run in runs])),
        )  # fmt: skip
    return table


def draw(found: dict[tuple[str, Variant], list[Run]], path: Path) -> None:
    """Draw a row for each task: learning curves, and the parts of actors' time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(task for task, _ in found))
    figure, axes = pyplot.subplots(
        len(names), 2, figsize=(12, 3.4 * len(names)), squeeze=False, layout="constrained"
    )
    for row, name in zip(axes, names, strict=True):
        of_task = {variant: runs for (task, variant), runs in found.items() if task == name}
        _curves(row[0], name, of_task)
        _shares(row[1], of_task)
    for axis in axes[0]:
        lines, labels = axis.get_legend_handles_labels()
        axis.legend(
            lines, labels, frameon=False, fontsize="small", ncols=3,
            loc="lower center", bbox_to_anchor=(0.5, 1.1),
        )  # fmt: skip
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _curves(axis: PlotObject, name: str, of_task: Mapping[Variant, list[Run]]) -> None:
    """The mean over seeds and one standard deviation, by steps.

    Values far below all values of the second half are not shown.
    """
    means = []
    for variant, runs in of_task.items():
        style = {"color": "black", "lw": 2.5} if variant == NONE else {}
        curves = [(steps / 1000, returns) for steps, returns in (run.curve for run in runs)]
        means.append(curve(axis, curves, variant.name, alpha=0.08, **style))
    top, late = np.max(means), np.array(means)[:, len(means[0]) // 2 :].min()
    bottom, margin = max(np.min(means), top - 2 * (top - late)), 0.05 * (top - late)
    axis.set_ylim(bottom - margin, top + margin)
    axis.set(title=name, xlabel="thousand steps of actors", ylabel="return, full precision")


def _shares(axis: PlotObject, of_task: Mapping[Variant, list[Run]]) -> None:
    """A bar for each variant, as a mean over seeds: figure 1, with and without compression."""
    left = np.zeros(len(of_task))
    for part in PARTS:
        took = np.array([np.mean([run.parts[part] for run in runs]) for runs in of_task.values()])
        color = "lightgrey" if part == "waiting" else None
        axis.barh([variant.name for variant in of_task], took, left=left, label=part, color=color)
        left += took
    axis.invert_yaxis()
    axis.set(xlabel="an actor's time, us of a step")


if __name__ == "__main__":
    app()
