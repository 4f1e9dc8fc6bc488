"""Time of static mode by effort, and how near its results are to float on held-out images.

    python -m benchmarks.effort_time [--network NAME] [--effort fast] [--repeats 3] [--json FILE]

The network is read and TensorFlow is imported before the clock starts. Efforts run in turn, in one
process; the medians of wall and CPU time count. Every repeat has to give the same network.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence

from benchmarks.real.cases import CASES, Case
from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph.choices import Effort
from qgraph.compiler import quantize
from qgraph.quantized import Quantized

USUAL = (Effort.PLAIN, Effort.FAST, Effort.DEFAULT)
COLUMNS = {
    "network": "",
    "samples": "",
    "effort": "",
    "seconds": ".1f",
    "CPU s": ".1f",
    "SQNR dB": ".2f",
    "as float": ".1%",
    "plan": "",
}


def tables(networks: Sequence[str], efforts: Sequence[Effort], repeats: int) -> Iterator[Table]:
    """One table; it is printed once all networks are done."""
    table = Table("Static mode by effort", COLUMNS)
    table.notes.append(f"medians of {repeats} runs in turns; SQNR and agreement on other images")
    for name in networks:
        case = CASES[name]()
        table.notes.append(case.images)
        for effort, cells in _measured(case, efforts, repeats):
            table.add(name, len(case.calibration), effort, *cells)
    yield table


def _measured(
    case: Case, efforts: Sequence[Effort], repeats: int
) -> Iterator[tuple[Effort, tuple[float, float, float, float | None, str]]]:
    times: dict[Effort, list[tuple[float, float]]] = {effort: [] for effort in efforts}
    found: dict[Effort, Quantized] = {}
    for _ in range(repeats):
        for effort in efforts:
            wall, cpu = time.perf_counter(), time.process_time()
            result = quantize(case.model, case.calibration, effort=effort)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            times[effort].append((wall, cpu))
            if str(found.setdefault(effort, result).graph) != str(result.graph):
                raise SystemExit(f"{case.title}, {effort}: two runs differ")
    for effort, result in found.items():
        seconds, cpu = (statistics.median(t) for t in zip(*times[effort], strict=True))
        near = case.agreement(result.graph)
        spec = result.facts.choice.plan_spec
        yield effort, (seconds, cpu, near.sqnr, near.top1, spec)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=CASES, action="append")
    parser.add_argument("--effort", choices=tuple(Effort), action="append")
    parser.add_argument("--repeats", type=int, default=1)
    add_json_option(parser)
    options = parser.parse_args()
    networks, efforts = options.network or [*CASES], options.effort or USUAL
    found = tables(networks, [Effort(effort) for effort in efforts], options.repeats)
    report("benchmarks.effort_time", found, options.json)


if __name__ == "__main__":
    main()
