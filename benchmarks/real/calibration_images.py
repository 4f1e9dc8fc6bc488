"""Calibration images of two MobileNets: how many, and enlarged CIFAR-10 images or photos.

The plan is fixed: what a search would choose also depends on how many images it has to compare
plans. Test images are in no calibration set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks import assets
from benchmarks.real.cases import Case, face_mask, mobilenet_v1
from benchmarks.real.measure import same_class, sqnr
from benchmarks.real.mobilenet import enlarged
from benchmarks.real.resumed import Part, resumed
from benchmarks.real.views import VIEWS, Shares, Views, labelled, others
from benchmarks.tables import Table
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.choices import Equalization
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.profile import load_profile
from qgraph.rewrite.trace import Trace
from qgraph.static.build import build
from qgraph.static.search import BALANCED

PLAN = replace(BALANCED, equalize=Equalization.MEASURED)
PROFILES = ("graffitist-int8", "graffitist-int4")
NETWORKS: Mapping[str, Callable[[], Case]] = {"MobileNetV1": mobilenet_v1, "face-mask": face_mask}
PICTURES = 1_000
SETS: Mapping[str, tuple[int, int]] = {  # enlarged CIFAR-10 images, views of photos
    "64 CIFAR-10": (64, 0),
    "256 CIFAR-10": (256, 0),
    "512 CIFAR-10": (512, 0),
    "64 views": (0, 64),
    "512 views": (0, 512),
    "256 CIFAR-10, 256 views": (256, 256),
}


def tables() -> Iterator[Table]:
    """One table: a row for each profile and set of calibration images."""
    plan = PLAN
    photos = labelled()
    table = Table(
        "Calibration images of two MobileNets",
        {"network": "", "profile": "", "images": "", "SQNR dB": ".1f", "as float, CIFAR-10": ".1%",
         "as float, views of photos": ".1f"},
        notes=[f"plan: `{plan.spec()}`",
               f"CIFAR-10: enlarged training images to calibrate; SQNR and as float: {PICTURES:,} "
               "enlarged test images",
               "views: of 23 photos to calibrate, spread over all photos; as float: "
               f"{VIEWS} of each of {photos.photos} other photos, in percent, ±: one standard "
               "error, over photos drawn again"],
    )  # fmt: skip
    parts: dict[str, Callable[[], Part]] = {
        f"{network}, {profile}, {images}": partial(_row, network, profile, images)
        for network, profile in product(NETWORKS, PROFILES)
        for images in SETS
    }
    for part in resumed("calibration-images", parts):
        for row in part.rows:
            table.add(*row)
    yield table


def _row(network: str, profile: str, images: str) -> Part:
    case, photos = NETWORKS[network](), labelled()
    pictures = enlarged(assets.cifar10_test()[0][:PICTURES])
    feeds = {case.model.inputs[0]: calibration_images(*SETS[images])}
    graph = build(case.model, load_profile(profile), PLAN, feeds, Trace())[1]
    found, wanted = (_logits(g, case, pictures, photos) for g in (graph, case.original))
    near = sqnr(wanted[0], found[0]), same_class(found[0], wanted[0])
    same = found[1].argmax(1) == wanted[1].argmax(1)
    row: list[Any] = [network, profile, images, *near, Shares(photos.photos).of(same).percent]
    print(row, flush=True)
    return Part([row], "")


def calibration_images(pictures: int, views: int) -> Array:
    """Enlarged training images of CIFAR-10, then views of photos: float32 [n, 224, 224, 3]."""
    train = enlarged(assets.cifar10_train()[0][:pictures])
    photos = others().images
    return np.concatenate([train, photos[:: len(photos) // views][:views]] if views else [train])


def _logits(graph: Graph, case: Case, pictures: Array, photos: Views) -> tuple[Array, Array]:
    program = TFProgram(emit_graph_def(graph))
    name, (output,) = case.model.inputs[0], graph.outputs
    first, second = (program.predict(name, x, output, 20) for x in (pictures, photos.images))
    return first, second
