"""How near each effort of the search comes to a float network, on samples kept apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.real.measure import batches, exactness, sqnr
from benchmarks.tables import Table
from qgraph.backends.tf.agreement import Checker
from qgraph.choices import Effort
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.types import Array

INT8 = "graffitist-int8"
COMPARED = 2


@dataclass(frozen=True)
class Way:
    """How a network is quantized."""

    effort: Effort
    profile: str = INT8


EFFORTS = (Effort.PLAIN, Effort.FAST, Effort.DEFAULT)
BY_EFFORT = tuple(map(Way, EFFORTS))


@dataclass(frozen=True)
class Experiment:
    """A network, samples [n, ...] to calibrate it, and others for the test.

    same: how much two outputs agree, from 0 to 1; measure: in words; samples: what they are.
    """

    title: str
    network: Callable[[], Path]
    calibration: Array
    test: Array
    same: Callable[[Array, Array], float]
    measure: str
    samples: str


def by_effort(
    title: str, experiments: Iterable[Experiment], ways: Sequence[Way] = BY_EFFORT
) -> Table:
    """SQNR and agreement of each network, by effort."""
    table = Table(
        title,
        {"network": "", "profile": "", "effort": "", "SQNR dB": ".1f", "as float": ".1%",
         "differ from reference": "", "seconds": ".1f", "plan": ""},
        notes=["graffitist-int8: 8 bits, one power-of-two scale per tensor",
               f"compared with the integer reference on {COMPARED} samples"],
    )  # fmt: skip
    for experiment in experiments:
        _measure(experiment, table, ways)
    return table


def _measure(experiment: Experiment, table: Table, ways: Sequence[Way]) -> None:
    model, test = load(experiment.network()), experiment.test
    (name,), (output,) = model.inputs, model.outputs
    wanted = evaluate(model, {name: test})[output]
    table.notes.append(
        f"{experiment.title}: {len(experiment.calibration)} {experiment.samples} to calibrate, "
        f"{len(test)} others; as float: {experiment.measure}"
    )
    for way in ways:
        start = time.perf_counter()
        made = quantize(model, experiment.calibration, profile=way.profile, effort=way.effort)
        seconds = time.perf_counter() - start
        found = evaluate(made.graph, {name: test})[output]
        same = exactness(Checker(made.graph), batches(name, test[:COMPARED], COMPARED))
        table.add(
            experiment.title, way.profile, way.effort, sqnr(wanted, found),
            experiment.same(found, wanted), str(same), seconds, made.facts.choice.plan_spec,
        )  # fmt: skip
