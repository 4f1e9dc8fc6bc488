"""`qgraph rl train`: learn a policy from actors that run it quantized."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qgraph.cli.options import Json
from qgraph.errors import UsageError
from qgraph.progress import Steps, silent_steps
from qgraph.rl.half.methods import half_settings

if TYPE_CHECKING:
    from qgraph.rl.learn.status import Status, Watch


class Algorithm(str, Enum):
    """The learners of `qgraph.rl.learn`."""

    dqn = "dqn"
    d4pg = "d4pg"
    sac = "sac"
    impala = "impala"


BY_TASK = "by algorithm and task"
COMPRESSION = "Compression"


def train(
    algo: Annotated[
        Algorithm | None,
        typer.Option(
            metavar="NAME", help="dqn, impala (one of several actions), d4pg or sac (numbers)."
        ),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="CartPole-v1, dm_control:cartpole-balance, ALE/Pong-v5, ..."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="The run's directory.", show_default="runs/..."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Steps of all actors together.", show_default=BY_TASK
        ),
    ] = None,
    actors: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Actors.", show_default="1")
    ] = None,
    actor_bits: Annotated[
        int | None,
        typer.Option(
            metavar="BITS", help="Of weights, as actors compute: 32, 16, 8 to 2.", show_default="32"
        ),
    ] = None,
    broadcast_bits: Annotated[
        int | None,
        typer.Option(
            metavar="BITS", help="Of weights on their way to actors.", show_default="--actor-bits"
        ),
    ] = None,
    first_bits: Annotated[
        int | None, typer.Option(metavar="BITS", help="Of the first layer, if it has others.")
    ] = None,
    last_bits: Annotated[
        int | None, typer.Option(metavar="BITS", help="Of the last layer, likewise.")
    ] = None,
    spi: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="RATIO",
            help="Samples per insert: how often a transition is learnt from.",
            show_default=BY_TASK,
        ),
    ] = None,
    actor_update_period: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="STEPS",
            help="Steps of an actor between looks for a new policy.",
            show_default="100",
        ),
    ] = None,
    publish_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="STEPS",
            help="Learner steps between policies for the quantizer.",
            show_default="10",
        ),
    ] = None,
    sync: Annotated[
        bool | None,
        typer.Option(
            "--sync/--async", help="Actors wait for the newest policy.", show_default="async"
        ),
    ] = None,
    pull: Annotated[
        bool | None,
        typer.Option(
            "--pull/--push", help="Policies are packed when an actor asks.", show_default="push"
        ),
    ] = None,
    in_process: Annotated[
        bool | None,
        typer.Option(
            "--in-process/--processes",
            help="Actors take turns in this process: one seed, one result.",
            show_default="processes",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Of a Ray cluster that actors are on; `auto` finds the one at hand.",
            show_default="here",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Of it, which share the actors.", show_default="1"),
    ] = None,
    double: Annotated[
        bool | None, typer.Option("--double/--no-double", help="dqn: double.", show_default="on")
    ] = None,
    dueling: Annotated[
        bool | None,
        typer.Option("--dueling/--no-dueling", help="dqn: dueling heads.", show_default="off"),
    ] = None,
    prioritized: Annotated[
        bool | None,
        typer.Option("--prioritized/--uniform", help="Replay by priority.", show_default="uniform"),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--n",
            min=1,
            metavar="STEPS",
            help="Of a transition; impala: of a trajectory.",
            show_default=BY_TASK,
        ),
    ] = None,
    correct: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="impala: for what the actors' policy does differently: vtrace, retrace, "
            "tree_backup, is; with constants, like vtrace(rho=1,c=0.9).",
            show_default="vtrace,is",
        ),
    ] = None,
    entropy: Annotated[
        float | None,
        typer.Option(min=0, metavar="WEIGHT", help="impala: in the loss.", show_default="0.02"),
    ] = None,
    value: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="WEIGHT", help="impala: of the critic's loss.", show_default="0.25"
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="impala: GPUs that share the learner's batch.",
            show_default="1",
        ),
    ] = None,
    reward_scale: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="FACTOR",
            help="impala, sac: rewards times this are learnt from.",
            show_default=BY_TASK,
        ),
    ] = None,
    hidden: Annotated[
        str | None,
        typer.Option(metavar="UNITS", help="Layers of the policy: 256,256.", show_default=BY_TASK),
    ] = None,
    layer_norm: Annotated[
        bool | None,
        typer.Option(
            "--layer-norm/--no-layer-norm", help="After the first layer.", show_default="off"
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0, metavar="RATE", help="Of Adam.", show_default=BY_TASK),
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, metavar="N", show_default=BY_TASK)] = None,
    mixed_bfloat16: Annotated[
        bool | None,
        typer.Option(
            "--mixed-bfloat16/--float32", help="Products in bfloat16.", show_default="float32"
        ),
    ] = None,
    half: Annotated[
        str | None,
        typer.Option(
            metavar="METHODS",
            help="sac: float16 with `all` methods, `none`, or a list of them; or `mixed`.",
            show_default="float32",
        ),
    ] = None,
    significand: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10,
            metavar="BITS",
            help="sac: that numbers are rounded to.",
            show_default="10 with --half",
        ),
    ] = None,
    evaluate_every: Annotated[
        int | None,
        typer.Option(min=1, metavar="STEPS", help="Learner steps between.", show_default=BY_TASK),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Of an evaluation.", show_default=BY_TASK),
    ] = None,
    energy: Annotated[
        bool | None,
        typer.Option(
            "--energy/--no-energy", help="Estimate it, by codecarbon.", show_default="off"
        ),
    ] = None,
    compress: Annotated[
        str | None,
        typer.Option(
            metavar="LINKS",
            help="What is done to policies on their way to actors: 'prune(0.5)|quantize(8)'.",
            show_default="nothing",
            rich_help_panel=COMPRESSION,
        ),
    ] = None,
    monitor: Annotated[
        str | None,
        typer.Option(
            metavar="STRATEGY",
            help="What steers that: kl_max:14, reward_gap:10, mix:0.5, growth, or watch.",
            show_default="none",
            rich_help_panel=COMPRESSION,
        ),
    ] = None,
    monitor_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Policies between its looks.",
            show_default="10",
            rich_help_panel=COMPRESSION,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, metavar="N", show_default="0")] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in --out; --steps may be more."),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Of the learner.", show_default="all cores"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn a policy; what actors run may have few bits, what is learnt is in float.

    Ctrl-C ends it with a checkpoint, from which --resume goes on.
    """
    given = {
        "steps": steps,
        "actors": actors,
        "actor_bits": actor_bits,
        "broadcast_bits": broadcast_bits,
        "first_bits": first_bits,
        "last_bits": last_bits,
        "spi": spi,
        "actor_update_period": actor_update_period,
        "publish_every": publish_every,
        "synchronous": sync,
        "on_demand": pull,
        "in_process": in_process,
        "ray": ray,
        "nodes": nodes,
        "double": double,
        "dueling": dueling,
        "alpha": None if prioritized is None else 0.6 * prioritized,
        "n": n,
        "correct": correct,
        "entropy": entropy,
        "value": value,
        "replicas": replicas,
        "reward_scale": reward_scale,
        "hidden": _units(hidden),
        "layer_norm": layer_norm,
        "rate": rate,
        "batch": batch,
        "half": mixed_bfloat16,
        "significand": significand,
        "evaluate_every": evaluate_every,
        "episodes": episodes,
        "energy": energy,
        "compress": compress,
        "monitor": monitor,
        "monitor_every": monitor_every,
        "seed": seed,
    }
    said = {name: value for name, value in given.items() if value is not None}
    if half is not None:
        said |= half_settings(half)
    algorithm = algo and algo.value
    path = out or Path("runs") / _name(algorithm, env, seed or 0)
    from qgraph.cli.console import import_tensorflow_quietly

    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        import_tensorflow_quietly()
        from qgraph.rl.learn.runs import train as learn

        with _bar(as_json) as (watch, tick):
            training = learn(
                path,
                algorithm,
                env,
                said,
                resume=resume,
                threads=threads,
                watch=watch,
                tick=tick,
            )
    _print(path, training, as_json)
    if not training.done:
        raise KeyboardInterrupt


def _name(algorithm: str | None, environment: str | None, seed: int) -> str:
    if algorithm is None or environment is None:
        raise UsageError("--algo and --env are needed", hint="or --resume --out DIR")
    plain = environment.replace(":", "-").replace("/", "-")
    return f"{algorithm}-{plain}-{seed}"


def _units(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        units = tuple(int(part) for part in text.split(","))
    except ValueError:
        units = (0,)
    if min(units) < 1:
        raise UsageError(f"`{text}` is no list of layers", hint="like --hidden 256,256")
    return units


@contextmanager
def _bar(as_json: bool) -> Iterator[tuple[Watch, Steps]]:
    """Steps as a bar and the newest evaluation beside it; without a terminal a line for each."""
    if not sys.stderr.isatty():
        yield (_silent if as_json else _line), silent_steps
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=terminal),
            transient=True,
        )
        task = bar.add_task("actors fill the replay", total=None)
        with bar:
            yield (
                lambda status: bar.update(task, description=line_of(status)),
                lambda done, total: bar.update(task, completed=done, total=total),
            )


def _silent(status: Status) -> None:
    """For machines."""


def _line(status: Status) -> None:
    print(line_of(status), file=sys.stderr)


def line_of(status: Status) -> str:
    """One line of where a run is."""
    return (
        f"{status.actor_steps:,} steps, {status.learner_steps:,} learnt: "
        f"return {status.return_mean:.1f} +- {status.return_error:.1f}, "
        f"actors {status.actors_return:.1f}"
    )


def _print(path: Path, training: Any, as_json: bool) -> None:
    from qgraph.cli.console import console

    status = training.status and asdict(training.status)
    if as_json:
        facts = {"directory": str(path), "done": training.done, "status": status}
        print(json.dumps(facts))
        return
    out = console()
    if training.status is not None:
        out.print(line_of(training.status), soft_wrap=True)
    if not training.done:
        out.print(f"stopped; go on with: qgraph rl train --resume --out {path}", soft_wrap=True)
    out.print(f"written to {path}", soft_wrap=True)
