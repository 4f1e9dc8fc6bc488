"""Which steps of static mode take its time, from a profile of one run."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

from benchmarks.real.cases import Case
from qgraph import compiler
from qgraph.choices import Effort
from qgraph.quant.profile import Profile
from qgraph.static import build
from qgraph.static.agreement import agreement
from qgraph.static.comparison import FloatOutputs
from qgraph.static.preparations import Preparations

OTHER = "other"
# The functions of each step. None runs within another.
STEPS: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "passes, factors of channels": (Preparations.prepared,),
    "statistics of float": (build.statistics_of,),
    "thresholds": (build.calibrate,),
    "weights": (build.reconstruct_weights,),
    "biases": (build.correct_biases,),
    "distance from float": (FloatOutputs.__init__, FloatOutputs.compare, agreement),
    "report": (compiler.finished,),
}


def seconds_by_step(case: Case, profile: Profile, effort: Effort) -> Iterator[tuple[str, float]]:
    """The wall time of each step in one run, and of everything else."""
    recorder, started = cProfile.Profile(), time.perf_counter()
    recorder.runcall(
        compiler.quantize, case.model, case.calibration, profile=profile, effort=effort
    )
    whole = time.perf_counter() - started
    found = pstats.Stats(recorder).stats  # type: ignore[attr-defined]
    for step, functions in STEPS.items():
        seconds = sum(_cumulative(found, function) for function in functions)
        whole -= seconds
        yield step, seconds
    yield OTHER, whole


def _cumulative(found: Mapping[tuple[str, int, str], tuple[Any, ...]], function: Any) -> float:
    assert isinstance(function, FunctionType)
    code = function.__code__
    return float(found.get((code.co_filename, code.co_firstlineno, code.co_name), (0,) * 4)[3])
