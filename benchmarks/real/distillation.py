"""`nudity`'s MobileNetV1, trained on images without labels to match the float network."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from benchmarks import assets
from benchmarks.real.measure import same_class, sqnr
from benchmarks.real.mobilenet import BACKGROUND, LOGITS, enlarged, scaled
from benchmarks.tables import Table
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.plan import parse_plan
from qgraph.train.checkpoint import restore
from qgraph.train.data import training_data
from qgraph.train.folded import norms_of
from qgraph.train.loop import Trainer
from qgraph.train.options import Options
from qgraph.train.score import TrainingStatus

CALIBRATION, TRAINING, VALIDATION, TEST = 64, 2_000, 200, 1_000
# The second is what a search finds (docs/results/efforts.md) without reconstructed weights: these
# lie in the middle between two roundings, and small steps never lead out.
STARTS = {
    "plain": parse_plan("weights=3sd"),
    "equalized": parse_plan("constant-channels=0.3,equalize=biases,method=mse,correct-bias"),
}
# Batch norms keep their statistics, because those of small enlarged images differ from photos.
OPTIONS = Options(
    epochs=2, batch_size=16, weight_rate=1e-5, norm_epochs=0, validate_every=50, freeze_start=200
)


def tables() -> Iterator[Table]:
    yield distilled()


def distilled() -> Table:
    (train, _), (test, _) = assets.cifar10_train(), assets.cifar10_test()
    parts = (CALIBRATION, CALIBRATION + TRAINING, CALIBRATION + TRAINING + VALIDATION)
    calibration, training = enlarged(train[: parts[0]]), enlarged(train[parts[0] : parts[1]])
    validation, pictures = enlarged(train[parts[1] : parts[2]]), enlarged(test[:TEST])
    photos, labels = assets.imagenet_images()
    seen = {"pictures": pictures, "photos": scaled(photos)}
    model = load(
        assets.mobilenet_v1(), outputs=[LOGITS], input_shapes={"input": (None, 224, 224, 3)}
    )
    wanted = _logits(model, seen)
    table = Table(
        "MobileNetV1, graffitist-int8, trained without labels",
        {"begins as": "", "state": "", "as float, CIFAR-10": ".1%", "logits SQNR dB": ".1f",
         "as float, photos": "d", "right, photos": "d", "minutes": ".0f"},
        notes=[
            f"{TRAINING:,} CIFAR-10 training images, enlarged, {OPTIONS.epochs} epochs in batches "
            f"of {OPTIONS.batch_size}; KL divergence from the float network; rates "
            f"{OPTIONS.weight_rate:g} (weights) and {OPTIONS.threshold_rate:g} (thresholds)",
            f"CIFAR-10: {TEST:,} test images, enlarged; photos: of {len(photos)}",
            f"calibrated on {CALIBRATION} other training images; the best of the validations on "
            f"{VALIDATION} more is kept",
        ],
    )  # fmt: skip
    for name, plan in STARTS.items():
        start = time.perf_counter()
        made = quantize(model, calibration, plan=plan, mode="retrain")
        data, held = (
            training_data({"input": images}, made.graph, OPTIONS.batch_size, OPTIONS.seed)
            for images in (training, validation)
        )
        trainer = Trainer(
            made.graph,
            made.floating,
            norms_of(made.floating),
            data,
            held,
            OPTIONS,
            watch=_print_status,
        )
        trainer.run()
        assert trainer.best is not None
        restore(trainer.model.named_variables(), trainer.best)
        minutes = (time.perf_counter() - start) / 60
        for when, graph, took in (
            ("calibrated", made.graph, None),
            (f"trained, best at step {_best(trainer)}", trainer.model.finalized(), minutes),
        ):
            table.add(name, when, *_compared(_logits(graph, seen), wanted, labels), took)
    return table


def _logits(graph: Graph, images: dict[str, Array]) -> dict[str, Array]:
    program = TFProgram(emit_graph_def(graph))
    (output,) = graph.outputs
    return {name: program.predict("input", x, output, 20) for name, x in images.items()}


def _compared(found: dict[str, Array], wanted: dict[str, Array], labels: Array) -> tuple[Any, ...]:
    answers, taught = found["photos"].argmax(1), wanted["photos"].argmax(1)
    return (
        same_class(found["pictures"], wanted["pictures"]),
        sqnr(wanted["pictures"], found["pictures"]),
        int((answers == taught).sum()),
        int((answers == labels + BACKGROUND).sum()),
    )


def _best(trainer: Trainer) -> int:
    return trainer.best_score.step if trainer.best_score else 0


def _print_status(status: TrainingStatus) -> None:
    if status.done % 25 == 0:
        print(f"epoch {status.epoch + 1}, step {status.done}, loss {status.loss:.3f}", flush=True)
