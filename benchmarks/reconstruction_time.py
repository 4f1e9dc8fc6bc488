"""Processor time of `reconstruct_weights` on two networks, with native and with plain rounding.

python -m benchmarks.reconstruction_time [--repeats 3] [--network cifar_10_model] [--json FILE]

Both run in turn in one process, and the table has the shortest processor time of each. Both must
choose the same codes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np

from benchmarks.real.cases import BY_MSE, Case, cifar, mobilenet_v1
from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph import kernels
from qgraph.choices import Equalization
from qgraph.ir.graph import Graph
from qgraph.kernels import plain_rounding
from qgraph.quant.reconstruction.reconstruct import reconstruct_weights

PLAN = replace(BY_MSE, equalize=Equalization.BIASES)
NETWORKS = {"cifar_10_model": cifar, "MobileNetV1": mobilenet_v1}


@contextmanager
def native() -> Iterator[None]:
    yield


@contextmanager
def plain() -> Iterator[None]:
    with (
        mock.patch.object(kernels, "round_in_turn", plain_rounding.round_in_turn),
        mock.patch.object(kernels, "descend", plain_rounding.descend),
    ):
        yield


def reconstructed(case: Case, floating: Graph, graph: Graph) -> tuple[Graph, float]:
    """The network with reconstructed weights, and the processor seconds."""
    result, data = graph.copy(), {case.model.inputs[0]: case.calibration}
    start = time.process_time()
    reconstruct_weights(result, floating, data)
    return result, time.process_time() - start


def constants(graph: Graph) -> bytes:
    arrays = (node.attrs["value"] for node in graph.topological() if node.op == "const")
    return b"".join(np.asarray(array).tobytes() for array in arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--network", choices=NETWORKS, action="append")
    add_json_option(parser)
    options = parser.parse_args()
    table = Table(
        "Reconstruction of weights",
        {"network": "", "rounding": "", "CPU s": ".1f", "SQNR dB": ".2f", "as float": ".1%"},
        notes=[f"the least of {options.repeats} runs in turns; both choose the same codes"],
    )
    for name in options.network or NETWORKS:
        case = NETWORKS[name]()
        table.notes.append(case.images)
        floating, graph = case.built(PLAN)
        before = case.agreement(graph)
        table.add(name, "to nearest", None, before.sqnr, before.top1)
        times: dict[str, list[float]] = {}
        chosen = set()
        for _ in range(options.repeats):
            for variant in (native, plain):
                with variant():
                    result, seconds = reconstructed(case, floating, graph)
                times.setdefault(variant.__name__, []).append(seconds)
                chosen.add(constants(result))
        if len(chosen) > 1:
            raise SystemExit(f"{name}: the codes differ")
        after = case.agreement(result)
        for variant_name, found in times.items():
            table.add(name, variant_name, min(found), after.sqnr, after.top1)
    report("benchmarks.reconstruction_time", [table], options.json)


if __name__ == "__main__":
    main()
