"""Networks for text and files, trained without labels from the result of effort `default`.

The float network is the teacher. The best state by validation samples is kept if it is better than
the start, and tested on the samples of the pages on these networks, which training does not see.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from benchmarks.real import file_types, text
from benchmarks.real.by_effort import Experiment
from benchmarks.real.measure import sqnr
from benchmarks.real.resumed import Part, resumed
from benchmarks.tables import Table
from qgraph.choices import Effort, LossKind
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.types import Array
from qgraph.train.checkpoint import restore
from qgraph.train.data import training_data
from qgraph.train.folded import norms_of
from qgraph.train.loop import Trainer
from qgraph.train.options import Options
from qgraph.train.score import TrainingStatus

PROFILE = "graffitist-int8"
VALIDATED = 256
# Statistics of batch norms stay, and steps are small, since training starts near float.
NEAR = Options(
    epochs=2, batch_size=16, step_rate=0.003, threshold_rate=1e-3, norm_epochs=0, freeze_start=10**6
)
LOSSES = (LossKind.TEACHER, LossKind.BLOCKS)


@dataclass(frozen=True)
class Trained:
    """A network with its samples: those of `experiment`, and more of the kind to train with.

    more: samples [n, ...] of which the last `VALIDATED` choose the best state. options: of
    training, for each loss to try.
    """

    experiment: Experiment
    more: Array
    options: tuple[Options, ...]


def _magika() -> Trained:
    (experiment,) = file_types.experiments()
    return Trained(experiment, file_types.more_features(2_000), _each(NEAR))


def _page_orientation() -> Trained:
    experiment = _of_text("OriNet orientation")
    return Trained(experiment, text.pages_turned(1_000, seed=4), _each(NEAR))


def _direction() -> Trained:
    return Trained(_of_text("PP-OCR direction"), text.lines_turned(2_000, seed=5), _each(NEAR))


def _detection() -> Trained:
    # The output is a map of scores, not classes.
    losses = (LossKind.MSE, LossKind.BLOCKS)
    return Trained(
        _of_text("PP-OCR detection"), text.pictures(600, text.DETECTED, seed=6),
        tuple(replace(NEAR, loss=loss) for loss in losses),
    )  # fmt: skip


def _of_text(title: str) -> Experiment:
    (found,) = (e for e in text.experiments() if e.title == title)
    return found


def _each(options: Options) -> tuple[Options, ...]:
    return tuple(replace(options, loss=loss) for loss in LOSSES)


NETWORKS: Mapping[str, Callable[[], Trained]] = {
    "magika": _magika,
    "OriNet": _page_orientation,
    "PP-OCR direction": _direction,
    "PP-OCR detection": _detection,
}


def tables() -> Iterator[Table]:
    """One table: for each network the static result, and the trained ones by loss."""
    table = Table(
        "Networks for text and files, trained without labels",
        {"network": "", "loss": "", "state": "", "SQNR dB": ".1f", "as float": ".1%",
         "minutes": ".1f"},
        notes=[f"{PROFILE}; trained from the result of effort default, {NEAR.epochs} epochs in "
               f"batches of {NEAR.batch_size}; rate of weights {NEAR.step_rate:g} steps, annealed, "
               f"of thresholds {NEAR.threshold_rate:g}; the best of the validations on "
               f"{VALIDATED} samples is kept"],
    )  # fmt: skip
    parts = {name: partial(_part, made) for name, made in NETWORKS.items()}
    for part in resumed("trained-by-float", parts):
        table.notes.append(part.note)
        for row in part.rows:
            table.add(*row)
    yield table


def _part(made: Callable[[], Trained]) -> Part:
    case = made()
    experiment = case.experiment
    training, validation = case.more[:-VALIDATED], case.more[-VALIDATED:]
    model = load(experiment.network())
    (name,), (output,) = model.inputs, model.outputs
    wanted = evaluate(model, {name: experiment.test})[output]
    found = quantize(
        model, experiment.calibration, mode="retrain", profile=PROFILE, effort=Effort.DEFAULT
    )
    rows: list[list[Any]] = []

    def add(loss: str | None, state: str, graph: Any, minutes: float | None) -> None:
        near = evaluate(graph, {name: experiment.test})[output]
        rows.append([
            experiment.title, loss, state, sqnr(wanted, near), experiment.same(near, wanted),
            minutes,
        ])  # fmt: skip
        print(rows[-1], flush=True)

    add(None, "calibrated", found.graph, None)
    for options in case.options:
        steps = len(training) // options.batch_size
        settings = replace(
            options, anneal_steps=options.epochs * steps, validate_every=max(steps // 4, 1)
        )
        data, held = (
            training_data({name: part}, found.graph, settings.batch_size, settings.seed)
            for part in (training, validation)
        )
        start = time.perf_counter()
        trainer = Trainer(
            found.graph, found.floating, norms_of(found.floating), data, held, settings,
            watch=_print_status,
        )  # fmt: skip
        trainer.run()
        assert trainer.best is not None
        restore(trainer.model.named_variables(), trainer.best)
        minutes = (time.perf_counter() - start) / 60
        best = trainer.best_score.step if trainer.best_score else 0
        add(trainer.loss.kind, f"best at step {best}", trainer.model.finalized(), minutes)
    return Part(
        rows,
        f"{experiment.title}: {len(experiment.calibration)} {experiment.samples} to calibrate, "
        f"{len(training)} to train, {len(experiment.test)} to test; as float: {experiment.measure}",
    )


def _print_status(status: TrainingStatus) -> None:
    if status.done % 20 == 0:
        best = status.best.accuracy if status.best and status.best.accuracy else 0.0
        print(f"step {status.done}, loss {status.loss:.4f}, best {best:.1%}", flush=True)
