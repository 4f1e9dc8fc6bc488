"""The networks on which the time and the agreement of each effort are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks.families.networks import FAMILIES
from benchmarks.real import cases, file_types, text
from benchmarks.real.by_effort import Experiment
from benchmarks.real.cases import Case
from benchmarks.real.plan_choice import family
from qgraph.frontends import load

FAMILY = "(Fashion-MNIST)"  # the end of the names of families
INT4_ACTIVATIONS = str(Path(__file__).with_name("int4-activations.yaml"))


def _of(title: str, experiments: Callable[[], Iterator[Experiment]]) -> Case:
    """The case of an experiment with an ONNX file."""
    (found,) = (e for e in experiments() if e.title == title)
    path = found.network()
    note = (
        f"{title}: {len(found.calibration)} {found.samples} to calibrate, {len(found.test)} others"
    )
    return Case(title, load(path), found.calibration, found.test, note, path)


NETWORKS: Mapping[str, Callable[[], Case]] = {
    **cases.CASES,
    **{f"{name} {FAMILY}": partial(family, name) for name in FAMILIES},
    "PP-OCR detection": partial(_of, "PP-OCR detection", text.experiments),
    "OriNet": partial(_of, "OriNet orientation", text.experiments),
    "magika": partial(_of, "magika", file_types.experiments),
}
