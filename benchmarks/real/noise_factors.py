"""`equalize=noise`: factors from batch norms or samples, for 8 bits or for the target's bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

from benchmarks import assets
from benchmarks.real.cases import BY_MSE, Case, cifar, face_mask, mobilenet_v1
from benchmarks.real.mobilenet import enlarged
from benchmarks.real.resumed import Part, resumed
from benchmarks.real.views import labelled
from benchmarks.tables import Table
from qgraph.choices import Effort, Equalization
from qgraph.compiler import quantize
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.static.agreement import agreement

BALANCED = replace(BY_MSE, equalize=Equalization.NOISE, reconstruct=True)
NORMS, SAMPLES = "batch norms", "batch norms, samples"
WAYS: Mapping[str, dict[str, Any]] = {
    "effort fast": {"effort": Effort.FAST},
    "effort default": {"effort": Effort.DEFAULT},
    f"`{BALANCED.spec()}`": {"plan": BALANCED},
}
THOUSAND = "1,000 CIFAR-10 test images"
FOUND = "qgraph.static.preparations.channel_factors"
STEPS = "qgraph.static.preparations.layer_steps"
PROFILES = ("graffitist-int8", "graffitist-int4")


@dataclass(frozen=True)
class _Scene:
    """A network with its calibration images, and sets of test images by title."""

    case: Case
    tests: Mapping[str, Array]

    def part(self) -> Part:
        """The network's rows of the table."""
        return Part([*self._rows()], self.case.images)

    def _rows(self) -> Iterator[list[Any]]:
        for way, options in WAYS.items():
            for source in (NORMS, SAMPLES):
                if way == "effort fast" and source == SAMPLES:
                    continue  # the plan has no such factors
                graph = self._quantized(options, source)
                for images, test in self.tests.items():
                    data = {self.case.model.inputs[0]: test}
                    near = agreement(self.case.original, graph, data)
                    share = near.top1 or 0.0
                    error = float(np.sqrt(share * (1 - share) / len(test)))
                    cells = [near.sqnr, 100 * share, 100 * error]
                    yield [self.case.title, way, source, images, *cells]

    def _quantized(self, options: Mapping[str, Any], source: str) -> Graph:
        if source == SAMPLES:
            return quantize(self.case.model, self.case.calibration, **options).graph
        with mock.patch(FOUND, return_value={}):
            return quantize(self.case.model, self.case.calibration, **options).graph


def tables() -> Iterator[Table]:
    """One table with every network, effort and plan, with factors from both sources."""
    table = Table(
        "Factors of `equalize=noise`",
        {"network": "", "way": "", "factors from": "", "images": "", "SQNR dB": ".2f",
         "as float, %": ".1f", "error": ".1f"},
        notes=["calibrated on CIFAR-10 training images: 512 for cifar_10_model, 64 at 224 for the "
               "others; `error` assumes that images are independent, which views of one photo are "
               "not"],
    )  # fmt: skip
    for part in resumed("noise-factors", SCENES):
        for row in part.rows:
            table.add(*row)
    yield table


def bits_tables() -> Iterator[Table]:
    """One table with networks and profiles, with factors for 8 bits and for the target's bits."""
    table = Table(
        f"Bits that factors of `{BALANCED.spec()}` are made for",
        {"network": "", "profile": "", "factors for": "", "SQNR dB": ".2f", "as float": ".1%"},
        notes=["8 bits: of weights and of activations without a sign, in all layers"],
    )  # fmt: skip
    for case in (mobilenet_v1(), face_mask()):
        tests = enlarged(_pictures(500))
        table.notes.append(f"{case.title}: 64 training images to calibrate, {len(tests)} others")
        for profile in PROFILES:
            for bits, known in (("8 bits", mock.patch(STEPS, return_value={})), ("target", None)):
                with known or nullcontext():
                    graph = case.built(BALANCED, profile)[1]
                near = agreement(case.original, graph, {case.model.inputs[0]: tests})
                table.add(case.title, profile, bits, near.sqnr, near.top1)
    yield table


def _mobilenet_v1() -> Part:
    photos = {THOUSAND: enlarged(_pictures(1000)), "640 views of 20 photos": labelled().images}
    return _Scene(mobilenet_v1(), photos).part()


def _cifar() -> Part:
    tests = {"5,000 CIFAR-10 test images": _pictures(5000).astype(np.float32)}
    return _Scene(cifar(), tests).part()


def _face_mask() -> Part:
    return _Scene(face_mask(), {"200 CIFAR-10 test images": enlarged(_pictures(200))}).part()


def _pictures(count: int) -> Array:
    return assets.cifar10_test()[0][:count]


SCENES: Mapping[str, Callable[[], Part]] = {
    "MobileNetV1": _mobilenet_v1,
    "cifar_10_model": _cifar,
    "face-mask": _face_mask,
}
