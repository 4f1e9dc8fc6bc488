"""Time of static mode by effort, and how near its results are to float on held-out images.

    python -m benchmarks.effort_time [--network NAME] [--effort fast] [--repeats 3] [--json FILE]

The network is read and TensorFlow is imported before the clock starts. Efforts run in turn, in one
process; the medians of wall and CPU time count. Every repeat has to give the same network. Beside
them, `--peers` converts the same network with LiteRT and ONNX Runtime, calibrated on the same
images (float scales, one for each channel of weights).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.peers.float_onnx import float_onnx
from benchmarks.peers.litert import LiteRT, full_integer
from benchmarks.peers.onnx_runtime import OnnxRuntime, quantized
from benchmarks.real.cases import CASES, Case
from benchmarks.real.measure import same_class
from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph.choices import Effort
from qgraph.compiler import quantize
from qgraph.interpret import evaluate
from qgraph.ir.types import Array
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
Predict = Callable[[Array], Array]


def _litert(case: Case) -> Predict:
    return LiteRT(full_integer(case.model, case.calibration, 1)).predict


def _onnx_runtime(case: Case) -> Predict:
    float_file = float_onnx(case.model, None)
    session = OnnxRuntime(quantized(float_file, case.calibration, 1, per_channel=True))
    return lambda images: session.predict(images, 1)


PEERS: Mapping[str, Callable[[Case], Predict]] = {"LiteRT": _litert, "ONNX Runtime": _onnx_runtime}


def tables(
    networks: Sequence[str], efforts: Sequence[Effort], repeats: int, peers: bool
) -> Iterator[Table]:
    """One table; it is printed once all networks are done."""
    table = Table("Static mode by effort", COLUMNS)
    table.notes.append(f"medians of {repeats} runs in turns; SQNR and agreement on other images")
    if peers:
        table.notes.append(
            f"{', '.join(PEERS)}: seconds of one conversion, with float scales, one for each "
            "channel of weights, and zero points"
        )
    for name in networks:
        case = CASES[name]()
        table.notes.append(case.images)
        for effort, cells in _measured(case, efforts, repeats):
            table.add(name, len(case.calibration), effort, *cells)
        for peer in PEERS if peers else ():
            seconds, cpu, same = _of_peer(case, PEERS[peer])
            table.add(name, len(case.calibration), peer, seconds, cpu, None, same, "")
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


def _of_peer(case: Case, convert: Callable[[Case], Predict]) -> tuple[float, float, float]:
    """Wall and CPU seconds of a conversion, and agreement with float on the test images."""
    wall, cpu = time.perf_counter(), time.process_time()
    predict = convert(case)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    (name,) = case.original.inputs
    (wanted,) = evaluate(case.original, {name: case.test}).values()
    return wall, cpu, same_class(predict(case.test), wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=CASES, action="append")
    parser.add_argument("--effort", choices=tuple(Effort), action="append")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--peers", action="store_true")
    add_json_option(parser)
    options = parser.parse_args()
    networks, efforts = options.network or [*CASES], options.effort or USUAL
    found = tables(networks, [Effort(effort) for effort in efforts], options.repeats, options.peers)
    report("benchmarks.effort_time", found, options.json)


if __name__ == "__main__":
    main()
