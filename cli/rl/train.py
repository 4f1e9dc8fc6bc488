"""`qgraph rl train`: train a policy with actors that run it quantized."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from qgraph.cli.options import Json, own_modules
from qgraph.cli.progress_lines import LinesOfSteps, print_line
from qgraph.cli.rl import train_options as options
from qgraph.errors import Interrupted, UsageError
from qgraph.progress import Steps, silent_steps

if TYPE_CHECKING:
    from qgraph.rl.learn.status import Status, Watch


def train(
    algorithm: options.Algo = None,
    environment: options.Env = None,
    out: options.Out = None,
    resume: options.Resume = False,
    threads: options.Threads = None,
    device: options.Device = None,
    as_json: Json = False,
    **given: object,
) -> None:
    """Train a policy in float, with actors that may run it quantized.

    After Ctrl-C, --resume continues from a checkpoint.
    """
    from qgraph.cli.rl.train_summary import print_summary

    settings = options.settings_from(given)
    path = out or Path("runs") / _name(algorithm, environment, settings.get("seed", 0))
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        own_modules()  # links, correctors and strategies
        from qgraph.rl.learn.runs import train as learn

        with _bar(as_json) as (watch, tick):
            training = learn(
                path,
                algorithm,
                environment,
                settings,
                resume=resume,
                threads=threads,
                device=device,
                watch=watch,
                tick=tick,
                warn=_warn,
            )
    print_summary(path, training, as_json)
    if not training.done:
        how = f"to continue: qgraph rl train --resume --out {shlex.quote(str(path))}"
        raise Interrupted("interrupted; a checkpoint is kept", hint=how)


def _warn(caution: str) -> None:
    print(f"warning: {caution}", file=sys.stderr)


def _name(algorithm: str | None, environment: str | None, seed: object) -> str:
    if algorithm is None or environment is None:
        raise UsageError("--algo and --env are needed", hint="or --resume --out DIR")
    plain = environment.replace(":", "-").replace("/", "-")
    return f"{algorithm}-{plain}-{seed}"


options.add_settings(train)


@contextmanager
def _bar(as_json: bool) -> Iterator[tuple[Watch, Steps]]:
    """A bar of steps with the newest evaluation; without a terminal, a line per evaluation."""
    if not sys.stderr.isatty():
        yield (_silent, silent_steps) if as_json else (_line, LinesOfSteps())
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
        task = bar.add_task("actors collect the first steps", total=None)
        with bar:
            yield (
                lambda status: bar.update(task, description=line_of(status)),
                lambda done, total: bar.update(task, completed=done, total=total),
            )


def _silent(status: Status) -> None:
    """Print nothing: --json prints one document."""


def _line(status: Status) -> None:
    print_line(line_of(status))


def line_of(status: Status) -> str:
    """The progress of a run in one line."""
    return (
        f"{status.actor_steps:,} steps, {status.learner_steps:,} learner steps: "
        f"return {status.return_mean:.1f} +- {status.return_error:.1f}, "
        f"actors {status.actors_return:.1f}"
    )
