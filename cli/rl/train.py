"""`qgraph rl train`: learn a policy from actors that run it quantized."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from qgraph.cli.options import Json
from qgraph.cli.rl import train_options as options
from qgraph.errors import UsageError
from qgraph.progress import Steps, silent_steps
from qgraph.rl.half.methods import half_settings

if TYPE_CHECKING:
    from qgraph.rl.learn.status import Status, Watch


def train(
    algo: options.Algo = None,
    env: options.Env = None,
    out: options.Out = None,
    steps: options.Steps = None,
    actors: options.Actors = None,
    actor_bits: options.ActorBits = None,
    broadcast_bits: options.BroadcastBits = None,
    first_bits: options.FirstBits = None,
    last_bits: options.LastBits = None,
    spi: options.Spi = None,
    actor_update_period: options.ActorUpdatePeriod = None,
    publish_every: options.PublishEvery = None,
    sync: options.Sync = None,
    pull: options.Pull = None,
    quantizer: options.Quantizer = None,
    in_process: options.InProcess = None,
    ray: options.Ray = None,
    nodes: options.Nodes = None,
    double: options.Double = None,
    dueling: options.Dueling = None,
    prioritized: options.Prioritized = None,
    n: options.N = None,
    correct: options.Correct = None,
    entropy: options.Entropy = None,
    value: options.Value = None,
    replicas: options.Replicas = None,
    reward_scale: options.RewardScale = None,
    hidden: options.Hidden = None,
    layer_norm: options.LayerNorm = None,
    rate: options.Rate = None,
    batch: options.Batch = None,
    mixed_bfloat16: options.MixedBfloat16 = None,
    half: options.Half = None,
    significand: options.Significand = None,
    evaluate_every: options.EvaluateEvery = None,
    episodes: options.Episodes = None,
    energy: options.Energy = None,
    compress: options.Compress = None,
    monitor: options.Monitor = None,
    monitor_every: options.MonitorEvery = None,
    seed: options.Seed = None,
    resume: options.Resume = False,
    threads: options.Threads = None,
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
        "quantizer": quantizer,
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
    from qgraph.cli.rl.train_summary import print_summary

    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        import_tensorflow_quietly()
        sys.path.insert(0, os.getcwd())  # for links, correctors and strategies of one's own
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
    print_summary(path, training, as_json)
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
