"""Output of training: a progress bar, and a table of validations."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from qgraph.choices import LossKind
from qgraph.cli.console import at_work, console, print_last, print_table, print_warnings
from qgraph.cli.progress_lines import LinesOfSteps
from qgraph.errors import Interrupted
from qgraph.words import counted

if TYPE_CHECKING:
    from qgraph.static.facts import Facts
    from qgraph.train.loop import Trainer
    from qgraph.train.options import Options
    from qgraph.train.score import Score, TrainingStatus, Watch

VALIDATIONS_SHOWN = 20


@contextmanager
def training_bar(as_json: bool) -> Iterator[Watch]:
    """A callback that draws loss, accuracy, frozen thresholds and time left.

    Without a terminal, it prints lines to standard error instead; with JSON, nothing.
    """
    if not sys.stderr.isatty():
        yield _silent if as_json else _Lines()
        return
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
            console=Console(file=terminal),
            transient=True,
        )
        task = bar.add_task("training", total=None)

        def watch(status: TrainingStatus) -> None:
            total = status.steps and status.steps * status.epochs
            done = status.done + (status.steps or 0) * status.epoch
            bar.update(task, description=line_of(status), completed=done, total=total)

        with bar:
            yield watch


def _silent(status: TrainingStatus) -> None:
    """Show nothing, for machines."""


class _Lines:
    """Prints the status at the end of each epoch, and every few seconds of a long epoch."""

    def __init__(self) -> None:
        self.newest: TrainingStatus | None = None
        self.lines = LinesOfSteps()

    def __call__(self, status: TrainingStatus) -> None:
        if self.newest and status.epoch != self.newest.epoch:
            self.lines.print(line_of(self.newest))
        self.newest = status
        if status.done == status.steps and status.epoch + 1 == status.epochs:
            self.lines.print(line_of(status))
        elif self.lines.is_due():
            whole = f" of {status.steps:,}" if status.steps else ""
            self.lines.print(f"{line_of(status)}, step {status.done:,}{whole}")


def line_of(status: TrainingStatus) -> str:
    """The state of a run in one line."""
    words = [f"epoch {status.epoch + 1}/{status.epochs}", f"loss {status.loss:.4f}"]
    if status.accuracy is not None:
        words.append(f"accuracy {status.accuracy:.2%}")
    if status.best and status.best.accuracy is not None:
        words.append(f"best validation {status.best.accuracy:.2%}")
    return ", ".join([*words, f"{status.frozen}/{status.thresholds} thresholds frozen"])


def train_in(
    directory: Path,
    data: str,
    validation: str | None,
    options: Options,
    *,
    restart: bool = False,
    fast: bool = False,
    threads: int | None = None,
    devices: str | None = None,
    workers: bool = False,
    as_json: bool = False,
    resume: str,
) -> Trainer:
    """Run `qgraph.retrain.train` under a progress bar, and print the table of validations.

    Ctrl-C raises Interrupted, which names the command `resume`.
    """
    from qgraph import retrain
    from qgraph.retrain.run import check_files, sole_chief
    from qgraph.stopping import stoppable
    from qgraph.train.task import task_of

    task = task_of(workers)
    with sole_chief(directory, task):
        with at_work(as_json):
            check_files(directory, data, validation)
            if not fast:
                retrain.make_deterministic()
            if threads is not None:
                retrain.use_threads(threads)
            trainer = retrain.trainer(
                directory, data, validation, options,
                restart=restart, devices=devices, workers=workers,
            )  # fmt: skip
        prints = redirect_stdout(sys.stderr) if as_json else nullcontext()
        try:
            with prints, training_bar(as_json) as watch, stoppable() as stopped:
                trainer.watch, trainer.stopped = watch, stopped
                trainer.run()
        except KeyboardInterrupt:  # a second one, which does not wait for the end of a step
            raise _interrupted(trainer, resume) from None
    if not trainer.done:
        raise _interrupted(trainer, resume)
    if not as_json:
        _print_history(trainer)
    return trainer


def _interrupted(trainer: Trainer, resume: str) -> Interrupted:
    """The error of a run that was interrupted, with the command that continues it."""
    task = trainer.replicas.task
    if not task.is_chief:
        return Interrupted(
            f"worker {task.index} was interrupted; worker 0 keeps the checkpoint",
            hint=f"to continue: {resume}",
        )
    if trainer.kept_step is None:
        return Interrupted(
            "interrupted before the first checkpoint", hint=f"to start again: {resume}"
        )
    return Interrupted(
        f"interrupted; a checkpoint of step {trainer.kept_step} is kept",
        hint=f"to continue: {resume}",
    )


def _print_history(trainer: Trainer) -> None:
    from qgraph.train.data import ArrayBatches

    out, task = console(), trainer.replicas.task
    if not task.is_chief:
        out.print(f"worker {task.index} of {task.workers} is done; worker 0 has the results")
        return
    if trainer.validation is None:
        out.print("No validation data: the last checkpoint is used as the best one.\n")
        return
    rows = shown_scores(trainer.history, trainer.best_score)
    print_table(
        f"{trainer.at.step} steps, {trainer.at.epoch} epochs",
        (">step", ">epoch", ">loss", ">accuracy", ">frozen", ""),
        [_row(score, trainer.best_score) for score in rows],
    )
    if len(rows) < len(trainer.history):
        out.print(f"{len(rows)} of {len(trainer.history)} validations; --json prints all")
    validation = trainer.validation
    if isinstance(validation, ArrayBatches) and (
        validation.trained or validation.index is not None
    ):
        known = "sees too" if validation.trained else "did not see"
        apart = counted(validation.samples, "sample")
        out.print(f"validation: {apart} of the training data, which training {known}")
    if trainer.best_score is not None and trainer.best_score.step == 0:
        out.print(
            "Training did not improve the network: finalize uses the network before training."
        )
    if trainer.loss.kind != LossKind.LABELS and trainer.loss.classes is not None:
        out.print(
            "accuracy: share of samples with the same class as the float network\n", style="dim"
        )


def print_training_files(directory: Path, facts: Facts, as_json: bool) -> None:
    """Print the files of `quantize --mode retrain`, the next command, and the warnings."""
    from qgraph.cli.tables import print_inputs_seen
    from qgraph.retrain.directory import FILES

    if as_json:
        about_data = {"inputs_seen": facts.samples.inputs_seen, "warnings": facts.warnings}
        print(json.dumps({"output": str(directory), "files": [*FILES], **about_data}))
        return
    print_inputs_seen(facts.samples.inputs_seen)
    print_table("files", ("=file", "content"), [*FILES.items()])
    words = ["train", str(directory), "--data", "TRAIN.npz", "--validation", "VALIDATION.npz"]
    print_last(directory, words)
    print_warnings(facts.warnings)


def shown_scores(history: Sequence[Score], best: Score | None) -> Sequence[Score]:
    """Scores for a table of limited length: the first, the last, the best, and some between."""
    last = len(history) - 1
    if last < VALIDATIONS_SHOWN:
        return history
    spaced = {round(i * last / (VALIDATIONS_SHOWN - 1)) for i in range(VALIDATIONS_SHOWN)}
    return [score for i, score in enumerate(history) if i in spaced or score == best]


def _row(score: Score, best: Score | None) -> tuple[str, ...]:
    accuracy = "-" if score.accuracy is None else f"{score.accuracy:.2%}"
    mark = "best" if score == best else ""
    epoch = "-" if score.step == 0 else str(score.epoch + 1)
    return str(score.step), epoch, f"{score.loss:.4f}", accuracy, str(score.frozen), mark
