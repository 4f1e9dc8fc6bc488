"""Static mode by effort, and what each step of the plan that it finds brings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from benchmarks import assets
from benchmarks.real.measure import batches, exactness, same_class
from benchmarks.real.mobilenet import BACKGROUND, LOGITS, enlarged, scaled
from benchmarks.real.tables import Table
from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.plan import PLAIN, Plan, parse_plan
from qgraph.quant.profile import Profile, load_profile
from qgraph.rewrite.trace import Trace
from qgraph.static.build import build
from qgraph.static.parts import split
from qgraph.static.search import EFFORTS

COLUMNS = {
    "what": "",
    "first": ".2%",
    "as float": ".2%",
    "differ from reference": "",
    "seconds": ".1f",
}
PHOTOGRAPHED = 1000
Measure = Callable[[Graph], tuple[float, float, str]]


def tables() -> Iterator[Table]:
    yield from _cifar()
    yield from _mobilenet()


def _cifar() -> Iterator[Table]:
    images, labels = assets.cifar10_test()
    test = images.astype(np.float32)
    calibration = assets.cifar10_train()[0][:512].astype(np.float32)
    model = load(assets.cifar10_network())
    (name,), (output,) = model.inputs, list(model.outputs)
    wanted = TFProgram(emit_graph_def(model)).predict(name, test, output, 256)

    def measure(graph: Graph) -> tuple[float, float, str]:
        checker = Checker(graph)
        found = checker.program.predict(name, test, output, 256)
        accuracy = float((found.argmax(1) == labels).mean())
        same = exactness(checker, batches(name, test[:16], 16))
        return accuracy, same_class(found, wanted), str(same)

    notes = ["calibrated on 512 training images, all 10,000 test images", "first: accuracy"]
    for profile in ("graffitist-int8", "graffitist-int4"):
        yield from _of(f"cifar_10_model, {profile}", model, profile, calibration, measure, notes)


def _mobilenet() -> Iterator[Table]:
    model = load(assets.mobilenet_v1(), outputs=[LOGITS])
    (train, _), (test, _) = assets.cifar10_train(), assets.cifar10_test()
    calibration, pictures = enlarged(train[:64]), enlarged(test[:PHOTOGRAPHED])
    photos, labels = assets.imagenet_images()
    photos = scaled(photos)
    wanted = TFProgram(assets.mobilenet_v1()).predict("input", pictures, LOGITS, 1)

    def measure(graph: Graph) -> tuple[float, float, str]:
        checker = Checker(graph)
        right = checker.program.predict("input", photos, LOGITS, 1).argmax(1) == labels + BACKGROUND
        found = checker.program.predict("input", pictures, LOGITS, 1)
        same = exactness(checker, batches("input", photos[:2], 1))
        return float(right.mean()), same_class(found, wanted), str(same)

    notes = [
        f"calibrated on 64 CIFAR-10 training images at 224; as float: {PHOTOGRAPHED} test images",
        "first: right ones of 20 ImageNet photos (float: 17)",
    ]
    yield from _of(
        "MobileNetV1, graffitist-int8", model, "graffitist-int8", calibration, measure, notes
    )


def _of(
    title: str, model: Graph, profile: str, data: Array, measure: Measure, notes: list[str]
) -> Iterator[Table]:
    """One table by effort, one that adds the steps of the thorough plan one after the other."""
    target = load_profile(profile)
    efforts = Table(f"{title}, by effort", COLUMNS, notes=[*notes])
    plan = PLAIN
    for effort in EFFORTS:
        start = time.perf_counter()
        result = quantize(model, data, profile=target, effort=effort)
        taken = time.perf_counter() - start
        efforts.add(effort, *measure(result.graph), taken)
        plan = parse_plan(str(result.facts["plan_spec"]))
    efforts.notes.append(f"the thorough plan: {plan}")
    yield efforts
    yield _ablation(title, model, target, plan, data, measure)


def _ablation(
    title: str, model: Graph, profile: Profile, plan: Plan, data: Array, measure: Measure
) -> Table:
    table = Table(f"{title}, what each step brings", COLUMNS)
    learning = split(model, {model.inputs[0]: data}).learning
    steps = [
        ("nothing", PLAIN),
        ("+ thresholds", replace(PLAIN, method=plan.method)),
        ("+ constant channels", replace(PLAIN, method=plan.method,
                                        constant_channels=plan.constant_channels)),
        ("+ equalized channels", replace(plan, reconstruct=False, correct_bias=False)),
        ("+ corrected biases", replace(plan, reconstruct=False, correct_bias=True)),
        ("+ reconstructed weights", plan),
    ]  # fmt: skip
    for name, step in steps:
        start = time.perf_counter()
        _, graph = build(model, profile, step, learning, Trace())
        table.add(name, *measure(graph), time.perf_counter() - start)
    table.notes.append(f"the last row is the whole plan: {plan}")
    return table
