"""MobileNetV2 on CIFAR-10, float, static and trained: ``python -m benchmarks.mobilenet_v2.table``.

Trains the float network and quantizes it with 8 bits and with weights of 4 bits: plain, by the
search of static mode, and trained from the result of the search; and by other tools, TFMOT where it
is installed, MCT with `--mct`. A call ends after `--minutes`; the same command
continues and repeats no finished work. Checkpoints are chosen on 10,000 validation
images; the 10,000 test images are used for the table only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.families.data import CALIBRATION, Split, cifar10
from benchmarks.families.train import INPUT, OUTPUT
from benchmarks.mobilenet_v2.clock import Clock, OutOfTime
from benchmarks.mobilenet_v2.float_training import FloatRun, trained
from benchmarks.mobilenet_v2.peers import FloatNetwork, peers, right_by_peers
from benchmarks.quantizers.tfmot import is_installed
from benchmarks.registry import cache
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph import retrain
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.choices import Effort
from qgraph.compiler import quantize
from qgraph.files import sha256_of, write_whole
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quiet import import_tensorflow_quietly
from qgraph.train.options import Options
from qgraph.train.score import TrainingStatus

PROFILES = {"INT8": "graffitist-int8", "INT4": "graffitist-int4"}
FROM_PLAIN = ("INT4",)  # also trained from plain calibration, which loses little with 8 bits
VALIDATIONS = 5  # in an epoch of training
AT_ONCE = 500  # images that run together


@dataclass(frozen=True)
class Ways:
    """How the network is quantized: the effort of the search, and the training that follows."""

    effort: Effort = Effort.DEFAULT
    epochs: int = 3
    batch_size: int = 64
    weight_rate: float = 3e-5
    seed: int = 1

    def options(self, samples: int) -> Options:
        steps = max(samples // self.batch_size, 1)
        return Options(
            epochs=self.epochs,
            batch_size=self.batch_size,
            weight_rate=self.weight_rate,
            anneal_steps=self.epochs * steps,
            validate_every=max(steps // VALIDATIONS, 1),
            seed=self.seed,
        )


def right_answers(
    network: Path, data: Split, ways: Ways, folder: Path, clock: Clock
) -> Iterator[tuple[str, Array]]:
    """Which test images each network classifies correctly, bool [n], by the name of its row.

    Raises OutOfTime between two networks or in training, which keeps a checkpoint.
    """
    yield "float", _right(TFProgram(network), data)
    asked = {"network": sha256_of(network), **asdict(ways)}
    for bits, profile in PROFILES.items():
        plain = quantize(network, data.calibration, profile=profile, plan="plain")
        yield f"{bits}, plain", _right(_program(plain.graph), data)
        begun = partial(quantize, network, data.calibration, profile=profile, mode="retrain")
        starts = {"": partial(begun, effort=ways.effort.value)}
        if bits in FROM_PLAIN:
            starts[" from plain"] = partial(begun, plan="plain")
        for start, made in starts.items():
            place = folder / f"{bits}{start}".replace(" ", "-")
            if not _is_saved(place, asked):
                clock.check(f"{bits}, plain")
                retrain.save(made(), place, force=place.exists())
                write_whole(_facts(place), json.dumps(asked).encode())
            if not start:
                yield f"{bits}, static", _right(_program(retrain.load(place).graph), data)
            _train(f"{bits}{start}", place, data, ways, clock)
            title = f"{bits}, trained{start}"
            yield title, _right(_program(retrain.finalize(place).graph), data)


def _is_saved(place: Path, asked: Mapping[str, object]) -> bool:
    """Whether a folder has the network that is asked for, of the same float network."""
    facts = _facts(place)
    return facts.exists() and bool(json.loads(facts.read_text("utf-8")) == asked)


def _facts(place: Path) -> Path:
    return place.with_name(f"{place.name}.json")


def _train(bits: str, place: Path, data: Split, ways: Ways, clock: Clock) -> None:
    def watch(status: TrainingStatus) -> None:
        if status.done == status.steps and status.best:
            best = status.best.accuracy or 0.0
            print(f"{bits}, epoch {status.epoch + 1}: best validation {best:.2%}", flush=True)

    learnt, held = ((part.images, part.labels) for part in (data.training, data.validation))
    trainer = retrain.trainer(place, learnt, held, ways.options(len(data.training.labels)))
    trainer.watch, trainer.stopped = watch, clock.over
    trainer.run()
    if not trainer.done:
        raise OutOfTime(f"{bits}, step {trainer.at.step}")


def _program(graph: Graph) -> TFProgram:
    return TFProgram(emit_graph_def(graph))


def _right(program: TFProgram, data: Split) -> Array:
    """Whether the class of each test image is right."""
    scores = program.predict(INPUT, data.test.images, OUTPUT, AT_ONCE)
    return np.asarray(scores.argmax(1) == data.test.labels)


def accuracies(answers: dict[str, Array], notes: list[str]) -> Table:
    """The accuracy of each network, and its difference from float on the same images, in points."""
    table = Table(
        "MobileNetV2 on CIFAR-10",
        {"network": "", "test accuracy": ".2%", "over float": "+.2f", "standard error": ".2f"},
        notes=notes,
    )
    reference = answers["float"].astype(float)
    for name, right in answers.items():
        over = 100 * (right - reference)
        error = float(over.std() / np.sqrt(len(over)))
        compared = (None, None) if name == "float" else (float(over.mean()), error)
        table.add(name, float(right.mean()), *compared)
    return table


def main(
    width: Annotated[float, typer.Option(help="Multiplier of all channels.")] = 1.0,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of the float network.")] = 30,
    retrain_epochs: Annotated[int, typer.Option(min=1, help="Epochs of quantized ones.")] = 3,
    weight_rate: Annotated[float, typer.Option(help="Rate of quantized weights.")] = 3e-5,
    minutes: Annotated[float, typer.Option(help="Time after which this call ends.")] = 60.0,
    mct: Annotated[
        Path | None, typer.Option(help="Python of an environment with MCT and TensorFlow 2.15.")
    ] = None,
    rounding: Annotated[
        int, typer.Option(min=0, help="Epochs of MCT's gradient-based rounding; 0 leaves it out.")
    ] = 0,
    json_file: JsonFile = None,
) -> None:
    """Train and quantize what is missing, and print the table."""
    import_tensorflow_quietly()
    retrain.make_deterministic()
    clock, data = Clock(minutes), cifar10(255)
    folder = cache() / f"mobilenet_v2-{width:g}-{epochs}"
    folder.mkdir(parents=True, exist_ok=True)
    run, ways = FloatRun(width, epochs), Ways(epochs=retrain_epochs, weight_rate=weight_rate)
    answers: dict[str, Array] = {}
    notes = [
        f"width {width:g}; {epochs} epochs in float, {retrain_epochs} more for trained ones, with "
        f"a rate of {weight_rate:g} for weights; they begin as the static network, or as the plain "
        "one",
        "INT4: weights of 4 bits, those of the first and the last layer of 8; activations of 8",
        "LiteRT, ONNX Runtime, MCT, TFMOT: float scales, one for each channel of weights; LiteRT's "
        "converter has no weights of 4 bits",
        f"{CALIBRATION} training images to calibrate and to search; checkpoints by "
        f"{len(data.validation.labels):,} validation images, accuracy on "
        f"{len(data.test.labels):,} test images",
        "over float: in points, with its standard error over the same test images",
    ]
    try:
        network = trained(run, data, folder, clock)
        ours = right_answers(network, data, ways, folder, clock)
        tools = peers(ways.options(len(data.training.labels)), mct, is_installed(), rounding)
        theirs = right_by_peers(FloatNetwork(network, width), data, tools, folder / "peers", clock)
        for name, right in chain(ours, theirs):
            answers[name] = right
            print(f"{name}: {right.mean():.2%}", flush=True)
    except OutOfTime as stopped:
        print(f"out of time after: {stopped}; the same command continues from there", flush=True)
        raise typer.Exit(1) from None
    report("benchmarks.mobilenet_v2.table", [accuracies(answers, notes)], json_file, [ways.seed])


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    typer.run(main)
