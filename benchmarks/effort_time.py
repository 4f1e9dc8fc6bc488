"""Time of static mode by effort, and the agreement of its results with float on held-out images.

    python -m benchmarks.effort_time [NETWORK[:PROFILE[:EFFORT,...]] ...] [--peers] [--json FILE]

For example `cifar_10_model:graffitist-int4:fast,default MobileNetV1`; without networks, all that
`ALL` has. Networks are read and libraries are imported before the measurement. Efforts run in turn
in one process; the table has medians of wall and processor time. Every repeat must give the same
network. A run that was interrupted continues with the next network. With `--peers`, LiteRT and ONNX
Runtime convert the same networks, calibrated on the same images (8 bits, float scales, one scale
per channel of weights).
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.peers.float_onnx import float_onnx
from benchmarks.peers.litert import LiteRT, full_integer
from benchmarks.peers.onnx_runtime import OnnxRuntime, quantized
from benchmarks.real.at_logits import at_logits, onnx_at_logits
from benchmarks.real.cases import Case
from benchmarks.real.effort_networks import FAMILY, INT4_ACTIVATIONS, NETWORKS
from benchmarks.real.measure import same_class, sqnr
from benchmarks.real.resumed import Part, resumed
from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.choices import Effort
from qgraph.compiler import quantize
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.profile import Profile, load_profile
from qgraph.quantized import Quantized
from qgraph.quiet import import_tensorflow_quietly

USUAL = (Effort.PLAIN, Effort.FAST, Effort.DEFAULT)
PROFILE, INT4 = "graffitist-int8", "graffitist-int4"
COLUMNS = {
    "network": "",
    "profile": "",
    "samples": "",
    "effort": "",
    "seconds": ".1f",
    "CPU s": ".1f",
    "SQNR dB": ".2f",
    "as float": ".1%",
    "plan": "",
}
Predict = Callable[[Array], Array]


@dataclass(frozen=True)
class Run:
    """A network that is quantized for a profile, with some efforts."""

    network: str
    profile: str = PROFILE
    efforts: tuple[Effort, ...] = USUAL


ALL = (
    Run("cifar_10_model", efforts=tuple(Effort)),
    Run("cifar_10_model", INT4),
    Run("cifar_10_model", INT4_ACTIVATIONS),
    Run("MobileNetV1", efforts=tuple(Effort)),
    Run("MobileNetV1", INT4),
    *(Run(name) for name in NETWORKS if name not in ("cifar_10_model", "MobileNetV1")),
    *(Run(name, INT4) for name in NETWORKS if name.endswith(FAMILY)),
)


def parse_run(text: str) -> Run:
    """`NETWORK`, `NETWORK:PROFILE` or `NETWORK:PROFILE:EFFORT,...`. Raises ArgumentTypeError."""
    network, _, rest = text.partition(":")
    profile, _, efforts = rest.partition(":")
    if network not in NETWORKS:
        listed = ", ".join(NETWORKS)
        raise argparse.ArgumentTypeError(f"unknown network `{network}`; choose {listed}")
    chosen = tuple(_effort(name) for name in efforts.split(",")) if efforts else USUAL
    return Run(network, profile or PROFILE, chosen)


def _effort(name: str) -> Effort:
    if name not in tuple(Effort):
        raise argparse.ArgumentTypeError(f"unknown effort `{name}`; choose {', '.join(Effort)}")
    return Effort(name)


def _litert(model: Graph, case: Case) -> Predict:
    return LiteRT(full_integer(model, case.calibration, 1)).predict


def _onnx_runtime(model: Graph, case: Case) -> Predict:
    data = onnx_at_logits(case.onnx) if case.onnx else float_onnx(model)
    to_images = _from_channels_first if case.onnx else np.asarray
    int8 = quantized(data, to_images(case.calibration), 1, per_channel=True)
    session = OnnxRuntime(int8, optimized=False)  # gives the exact result on every processor
    return lambda samples: session.predict(to_images(samples), 1)


def _from_channels_first(x: Array) -> Array:
    """Images [n, height, width, channels], which the peer takes, from those of an ONNX file."""
    return x.transpose(0, 2, 3, 1) if x.ndim == 4 else x


PEERS: Mapping[str, Callable[[Graph, Case], Predict]] = {
    "LiteRT": _litert,
    "ONNX Runtime": _onnx_runtime,
}
FOLDED = ", batch norms folded"


def tables(runs: Sequence[Run], repeats: int, peers: bool) -> Iterator[Table]:
    """One table, which is printed when all networks are done."""
    table = Table("Static mode by effort", COLUMNS)
    how = "one run" if repeats == 1 else f"medians of {repeats} runs in turns"
    table.notes.append(
        f"{how}; SQNR and agreement on other images, ± the standard error of a share of that many "
        "images"
    )
    if peers:
        table.notes.append(
            f"{', '.join(PEERS)}: seconds of one conversion, to 8 bits with float scales, one for "
            f"each channel of weights, and zero points, without a final softmax; `{FOLDED[2:]}`: "
            "they got the float network that qgraph had simplified"
        )
    parts = {
        name: partial(
            _of_network, name, [run for run in runs if run.network == name], repeats, peers
        )
        for name in dict.fromkeys(run.network for run in runs)
    }
    asked = [str(run) for run in runs]
    for part in resumed("effort-time", parts, [*asked, str(repeats), str(peers)]):
        table.notes.append(part.note)
        for row in part.rows:
            table.add(*row)
    yield table


def _of_network(name: str, runs: Sequence[Run], repeats: int, peers: bool) -> Part:
    """The rows of a network."""
    case, rows = NETWORKS[name](), []
    for run in runs:
        profile = load_profile(run.profile)
        for effort, cells in _measured(case, profile, run.efforts, repeats):
            rows.append([name, profile.name, len(case.calibration), effort.value, *cells])
    for peer, cells in _of_peers(case) if peers else ():
        rows.append([name, None, len(case.calibration), peer, *cells])
    return Part(rows, case.images)


def _measured(
    case: Case, profile: Profile, efforts: Sequence[Effort], repeats: int
) -> Iterator[tuple[Effort, list[Any]]]:
    times: dict[Effort, list[tuple[float, float]]] = {effort: [] for effort in efforts}
    found: dict[Effort, Quantized] = {}
    for _ in range(repeats):
        for effort in efforts:
            wall, cpu = time.perf_counter(), time.process_time()
            result = quantize(case.model, case.calibration, profile=profile, effort=effort)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            times[effort].append((wall, cpu))
            if str(found.setdefault(effort, result).graph) != str(result.graph):
                raise SystemExit(f"{case.title}, {effort}: two runs differ")
    for effort, result in found.items():
        seconds, cpu = (statistics.median(t) for t in zip(*times[effort], strict=True))
        near = case.agreement(result.graph)
        same = None if near.top1 is None else _share(near.top1, case)
        yield effort, [seconds, cpu, near.sqnr, same, result.facts.choice.plan_spec]


def _of_peers(case: Case) -> Iterator[tuple[str, list[Any]]]:
    """The results of each peer, for the network as it is and with folded batch norms.

    All are without a final softmax: qgraph's agreement is measured at the logits too. ONNX Runtime
    gets the file of a network that came from ONNX.
    """
    model, folded = at_logits(case.model), at_logits(case.original)
    (name,), (output,) = folded.inputs, folded.outputs
    wanted = TFProgram(emit_graph_def(folded)).predict(name, case.test, output, 1)
    for (peer, convert), (form, network) in product(
        PEERS.items(), {"": model, FOLDED: folded}.items()
    ):
        if form and case.onnx:
            continue
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            predict = convert(network, case)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            found = predict(case.test)
        except Exception as error:  # any fault of another tool is a result
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:60]
            yield f"{peer}{form}", [None, None, None, None, f"fails: {reason}"]
            continue
        same = _share(same_class(found, wanted), case) if wanted.ndim == 2 else None
        yield f"{peer}{form}", [wall, cpu, sqnr(wanted, found), same, None]


def _share(share: float, case: Case) -> list[float]:
    """A share of the test images, and its standard error."""
    return [share, float(np.sqrt(share * (1 - share) / len(case.test)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", metavar="NETWORK[:PROFILE[:EFFORT,...]]", nargs="*", type=parse_run)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--peers", action="store_true")
    add_json_option(parser)
    options = parser.parse_args()
    import_tensorflow_quietly()
    if options.peers:
        importlib.import_module("onnxruntime.quantization")  # import it before the measurement
    made = tables(options.runs or ALL, options.repeats, options.peers)
    report("benchmarks.effort_time", made, options.json)


if __name__ == "__main__":
    main()
