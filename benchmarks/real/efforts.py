"""Static mode by effort, and the effect of each step of the plan that it finds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks import assets
from benchmarks.real.measure import batches, exactness, same_class, sqnr
from benchmarks.real.mobilenet import BACKGROUND, LOGITS, enlarged, scaled
from benchmarks.real.steps import FLOAT_RUNS, built, seconds_of
from benchmarks.tables import Table, merged
from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.choices import Effort
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.plan import PLAIN, parse_plan
from qgraph.quant.profile import load_profile

COLUMNS = {
    "right": ".2%",
    "as float": ".2%",
    "SQNR, dB": ".1f",
    "differ from reference": "",
    "seconds": ".1f",
    "float runs": ".0f",
}
PICTURES, PREDICTED = 1000, 200


@dataclass(frozen=True)
class Case:
    """A network, what it is calibrated on, images for agreement with float, and others that are
    `labelled`; run `batch` at a time.
    """

    title: str
    model: Graph
    calibration: Array
    agreement: Array
    labelled: tuple[Array, Array] | None
    batch: int
    notes: tuple[str, ...]
    profiles: tuple[str, ...] = ("graffitist-int8",)
    efforts: tuple[str, ...] = tuple(Effort)

    @property
    def input(self) -> str:
        return self.model.inputs[0]


def tables() -> Iterator[Table]:
    efforts: list[tuple[str, Table]] = []
    steps: list[tuple[str, Table]] = []
    for made in (_cifar, _mobilenet_v1, _mobilenet_v2):
        case = made()
        bench = _Bench(case)
        found = {profile: bench.tables(profile) for profile in case.profiles}
        for parts, index in ((efforts, 0), (steps, 1)):
            of_profiles = ((profile, both[index]) for profile, both in found.items())
            parts.append((case.title, merged(case.title, "profile", of_profiles)))
    yield merged("Static quantization by effort", "network", efforts)
    yield merged("What each step of the plan brings", "network", steps)


def _cifar() -> Case:
    images, labels = assets.cifar10_test()
    test = images.astype(np.float32)
    calibration = assets.cifar10_train()[0][:512].astype(np.float32)
    notes = ("calibrated on 512 training images; right, as float: all 10,000 test images",)
    model = load(assets.cifar10_network())
    both = ("graffitist-int8", "graffitist-int4")
    return Case("cifar_10_model", model, calibration, test, (test, labels), 256, notes, both)


def _mobilenet_v1() -> Case:
    photos, labels = assets.imagenet_images()
    model = load(assets.mobilenet_v1(), outputs=[LOGITS])
    notes = (
        f"calibrated on 64 CIFAR-10 training images at 224; as float: {PICTURES} test images",
        "right: of 20 ImageNet photos (float: 17)",
    )
    labelled = (scaled(photos), labels + BACKGROUND)
    return Case("MobileNetV1", model, *_enlarged(PICTURES), labelled, 1, notes)


def _mobilenet_v2() -> Case:
    notes = (
        f"calibrated on 64 CIFAR-10 training images at 224; as float: {PREDICTED} test images",
        "a detector of face masks with two classes: SQNR shows more than agreement",
    )
    model = load(assets.face_mask_network())
    efforts = ("plain", "fast", "default")
    return Case(
        "face-mask MobileNetV2", model, *_enlarged(PREDICTED), None, 20, notes, efforts=efforts
    )


def _enlarged(tests: int) -> tuple[Array, Array]:
    (train, _), (test, _) = assets.cifar10_train(), assets.cifar10_test()
    return enlarged(train[:64]), enlarged(test[:tests])


class _Bench:
    def __init__(self, case: Case) -> None:
        self.case = case
        program = TFProgram(emit_graph_def(case.model))
        self.output = next(iter(case.model.outputs))
        self.wanted = program.predict(case.input, case.agreement, self.output, case.batch)
        self.float_seconds = seconds_of(
            lambda: program.predict(case.input, case.calibration, self.output, case.batch)
        )

    def tables(self, profile: str) -> tuple[Table, Table]:
        """One table by effort, and one that adds the steps of the last plan one by one."""
        case, target = self.case, load_profile(profile)
        title = f"{case.title}, {profile}"
        notes = [
            *(f"{title}: {note}" for note in case.notes),
            f"{title}: float runs: the time in runs of the float network over the calibration "
            f"images ({self.float_seconds:.2f} s in TensorFlow, median of {FLOAT_RUNS})",
        ]
        efforts, plan = Table(title, {"effort": "", **COLUMNS}, notes=notes), PLAIN
        for effort in case.efforts:
            start = time.perf_counter()
            result = quantize(case.model, case.calibration, profile=target, effort=effort)
            self._add(efforts, effort, result.graph, time.perf_counter() - start)
            plan = parse_plan(result.facts.choice.plan_spec)
        efforts.notes.append(f"{title}: the {effort} plan: {plan.spec()}")
        steps = Table(title, {"step": "", **COLUMNS}, notes=["each row adds to the one before"])
        for name, graph, seconds in built(case.model, target, plan, {case.input: case.calibration}):
            self._add(steps, name, graph, seconds)
        return efforts, steps

    def _add(self, table: Table, name: str, graph: Graph, seconds: float) -> None:
        case, checker = self.case, Checker(graph)
        found = checker.program.predict(case.input, case.agreement, self.output, case.batch)
        right = None
        if case.labelled is not None:
            images, labels = case.labelled
            scores = found
            if images is not case.agreement:
                scores = checker.program.predict(case.input, images, self.output, case.batch)
            right = float((scores.argmax(1) == labels).mean())
        few = case.agreement[: 16 if case.batch > 1 else 2]
        same = exactness(checker, batches(case.input, few, min(case.batch, len(few))))
        table.add(
            name, right, same_class(found, self.wanted), sqnr(self.wanted, found), str(same),
            seconds, seconds / self.float_seconds,
        )  # fmt: skip
