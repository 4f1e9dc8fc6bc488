"""Which steps of static mode take its time: ``python -m benchmarks.effort_steps``.

Each network is quantized once with effort `default` under Python's profiler, which makes a run a
little longer.
"""

from __future__ import annotations

import argparse
import cProfile
import time
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

from benchmarks.real.cases import Case
from benchmarks.real.effort_networks import NETWORKS
from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph.choices import Effort
from qgraph.compiler import quantize
from qgraph.quant.calibrate import calibrate
from qgraph.quant.correct_bias import correct_biases
from qgraph.quant.profile import Profile, load_profile
from qgraph.quant.reconstruction.reconstruct import reconstruct_weights
from qgraph.quantized import finished
from qgraph.quiet import import_tensorflow_quietly
from qgraph.static.agreement import agreement
from qgraph.static.build import statistics_of
from qgraph.static.comparison import FloatOutputs
from qgraph.static.preparations import Preparations

OTHER = "other"
SHOWN = ("cifar_10_model", "MobileNetV1", "face-mask")
# The functions of each step. None runs within another.
STEPS: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "passes, factors of channels": (Preparations.prepared,),
    "statistics of float": (statistics_of,),
    "thresholds": (calibrate,),
    "weights": (reconstruct_weights,),
    "biases": (correct_biases,),
    "distance from float": (FloatOutputs.__init__, FloatOutputs.compare, agreement),
    "report": (finished,),
}


def seconds_by_step(case: Case, profile: Profile, effort: Effort) -> Iterator[tuple[str, float]]:
    """The wall time of each step in one run, and of everything else."""
    recorder, started = cProfile.Profile(), time.perf_counter()
    recorder.runcall(quantize, case.model, case.calibration, profile=profile, effort=effort)
    whole = time.perf_counter() - started
    recorder.create_stats()
    found = recorder.stats
    for step, functions in STEPS.items():
        seconds = sum(_cumulative(found, function) for function in functions)
        whole -= seconds
        yield step, seconds
    yield OTHER, whole


def _cumulative(found: Mapping[tuple[str, int, str], tuple[Any, ...]], function: Any) -> float:
    assert isinstance(function, FunctionType)
    code = function.__code__
    return float(found.get((code.co_filename, code.co_firstlineno, code.co_name), (0,) * 4)[3])


def table(networks: Mapping[str, Callable[[], Case]]) -> Table:
    """The seconds of each step by network."""
    formats = {"network": "", **dict.fromkeys((*STEPS, OTHER), ".1f")}
    made = Table("Time of effort `default` by step", formats)
    for name, case in networks.items():
        found = seconds_by_step(case(), load_profile("graffitist-int8"), Effort.DEFAULT)
        made.add(name, *(seconds for _, seconds in found))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", metavar="NETWORK", nargs="*", help=", ".join(NETWORKS))
    add_json_option(parser)
    options = parser.parse_args()
    import_tensorflow_quietly()
    chosen = {name: NETWORKS[name] for name in options.networks or SHOWN}
    report("benchmarks.effort_steps", [table(chosen)], options.json)


if __name__ == "__main__":
    main()
