"""`nudity`'s MobileNetV1, trained on images without labels to match the float network."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import assets
from benchmarks.real.measure import same_class, sqnr
from benchmarks.real.mobilenet import BACKGROUND, LOGITS, enlarged
from benchmarks.real.views import VIEWS, Shares, Views, labelled
from benchmarks.tables import Table
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.choices import Effort, LossKind
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quantized import Quantized
from qgraph.train.checkpoint import restore
from qgraph.train.data import training_data
from qgraph.train.folded import norms_of
from qgraph.train.loop import Trainer
from qgraph.train.options import Options
from qgraph.train.score import TrainingStatus

CALIBRATION, TRAINING, VALIDATION, TEST = 64, 2_000, 200, 1_000
INT8, INT4 = "graffitist-int8", "graffitist-int4"
PLAIN, SEARCHED = "plain", "search"
STARTS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {"plan": "weights=3sd"},
    SEARCHED: {"effort": Effort.DEFAULT},
}
# Batch norms keep their statistics, because those of small enlarged images differ from photos.
OPTIONS = Options(
    epochs=2, batch_size=16, weight_rate=1e-5, norm_epochs=0, validate_every=50, freeze_start=200
)
STEPS = OPTIONS.epochs * TRAINING // OPTIONS.batch_size
# From the result of a search, steps are small: it is near to float, and a step that changes many
# codes at once leads away.
NEAR = replace(OPTIONS, step_rate=0.003, threshold_rate=1e-3, anneal_steps=STEPS)


@dataclass(frozen=True)
class Way:
    """A profile, a start, and how training continues from it."""

    profile: str
    start: str
    options: Options


TEACHER, BLOCKS = replace(NEAR, loss=LossKind.TEACHER), replace(NEAR, loss=LossKind.BLOCKS)
WAYS = (
    Way(INT8, SEARCHED, BLOCKS),
    Way(INT8, SEARCHED, TEACHER),
    Way(INT4, SEARCHED, BLOCKS),
    Way(INT8, PLAIN, OPTIONS),
)


def tables() -> Iterator[Table]:
    yield distilled()


def distilled() -> Table:
    (train, _), (test, _) = assets.cifar10_train(), assets.cifar10_test()
    parts = (CALIBRATION, CALIBRATION + TRAINING, CALIBRATION + TRAINING + VALIDATION)
    calibration, training = enlarged(train[: parts[0]]), enlarged(train[parts[0] : parts[1]])
    validation, pictures = enlarged(train[parts[1] : parts[2]]), enlarged(test[:TEST])
    photos = labelled()
    seen = {"pictures": pictures, "photos": photos.images}
    model = load(
        assets.mobilenet_v1(), outputs=[LOGITS], input_shapes={"input": (None, 224, 224, 3)}
    )
    wanted = _logits(model, seen)
    table = Table(
        "MobileNetV1, trained without labels",
        {"profile": "", "begins as": "", "loss": "", "rate of weights": "", "state": "",
         "as float, CIFAR-10": ".1%", "logits SQNR dB": ".1f", "as float, views of photos": ".1f",
         "photos right": "d", "minutes": ".0f"},
        notes=[
            f"{TRAINING:,} CIFAR-10 training images, enlarged, {OPTIONS.epochs} epochs in batches "
            f"of {OPTIONS.batch_size}; rates of thresholds: {OPTIONS.threshold_rate:g}, or "
            f"{NEAR.threshold_rate:g} where that of weights is in steps",
            f"CIFAR-10: {TEST:,} test images, enlarged; views: {VIEWS} of each of {photos.photos} "
            "photos, in percent, ±: one standard error, over photos drawn again; photos right: the "
            f"whole square of each of {photos.photos}, float {_right(wanted, photos)}",
            f"calibrated on {CALIBRATION} other training images; the best of the validations on "
            f"{VALIDATION} more is kept",
        ],
    )  # fmt: skip
    made: dict[tuple[str, str], Quantized] = {}
    for way in WAYS:
        begins = way.profile, way.start
        if begins not in made:
            found = quantize(
                model, calibration, mode="retrain", profile=way.profile, **STARTS[way.start]
            )
            made[begins] = found
            compared = _compared(_logits(found.graph, seen), wanted, photos)
            table.add(*begins, None, None, "calibrated", *compared, None)
        start = time.perf_counter()
        trainer = _trained(made[begins], training, validation, way.options)
        minutes = (time.perf_counter() - start) / 60
        compared = _compared(_logits(trainer.model.finalized(), seen), wanted, photos)
        print(way.profile, trainer.loss.kind, compared, f"{minutes:.1f} minutes", flush=True)
        state = f"trained, best at step {_best(trainer)}"
        table.add(*begins, trainer.loss.kind, _rate(way.options), state, *compared, minutes)
    return table


def _trained(made: Quantized, training: Array, validation: Array, options: Options) -> Trainer:
    """A trainer after its run, with the best state."""
    data, held = (
        training_data({"input": images}, made.graph, options.batch_size, options.seed)
        for images in (training, validation)
    )
    norms = norms_of(made.floating)
    trainer = Trainer(made.graph, made.floating, norms, data, held, options, watch=_print_status)
    trainer.run()
    assert trainer.best is not None
    restore(trainer.model.named_variables(), trainer.best)
    return trainer


def _rate(options: Options) -> str:
    if options.step_rate is None:
        return f"{options.weight_rate:g}"
    return f"{options.step_rate:g} steps"


def _logits(graph: Graph, images: dict[str, Array]) -> dict[str, Array]:
    program = TFProgram(emit_graph_def(graph))
    (output,) = graph.outputs
    return {name: program.predict("input", x, output, 20) for name, x in images.items()}


def _compared(found: dict[str, Array], wanted: dict[str, Array], photos: Views) -> tuple[Any, ...]:
    same = found["photos"].argmax(1) == wanted["photos"].argmax(1)
    return (
        same_class(found["pictures"], wanted["pictures"]),
        sqnr(wanted["pictures"], found["pictures"]),
        Shares(photos.photos).of(same).percent,
        _right(found, photos),
    )


def _right(found: dict[str, Array], photos: Views) -> int:
    """How many photos have the right class, seen as they are."""
    assert photos.classes is not None
    right = found["photos"].argmax(1) == photos.classes + BACKGROUND
    return int(right[::VIEWS].sum())


def _best(trainer: Trainer) -> int:
    return trainer.best_score.step if trainer.best_score else 0


def _print_status(status: TrainingStatus) -> None:
    if status.done % 25 == 0:
        best = status.best.accuracy if status.best and status.best.accuracy else 0.0
        where = f"epoch {status.epoch + 1}, step {status.done}"
        print(f"{where}, loss {status.loss:.3f}, best {best:.1%}", flush=True)
