"""The narrowest accumulators of real networks: ``python -m benchmarks.accumulators``.

The table has the range that each layer's sums reach with its real weights, and the range that the
same number of products of such codes could reach with any weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import typer

from benchmarks import assets
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.compiler import quantize
from qgraph.ir.reading import spec_if_any
from qgraph.ir.types import Array
from qgraph.program import lower
from qgraph.program.accumulators import accumulators
from qgraph.quiet import import_tensorflow_quietly

PROFILE = "int32-bias"  # its bias is added in the accumulator


def networks() -> Iterator[tuple[str, Path, Array]]:
    yield "cifar_10_model", assets.cifar10_network(), assets.cifar10_train()[0][:64] * np.float32(1)
    photos = assets.imagenet_images()[0][:8] / np.float32(127.5) - np.float32(1)
    yield "MobileNetV1", assets.mobilenet_v1(), photos


def table(name: str, path: Path, data: Array) -> Table:
    made = Table(
        f"{name}: bits of the narrowest accumulator, profile {PROFILE}",
        {"layer": "", "op": "", "terms": ",d", "lowest": ",d", "highest": ",d", "bits": "d",
         "bits by channel": "", "bits with any weights": "d", "exact in": ""},
        notes=["lowest and highest: the limits of sums with their bias",
               "with any weights: limits for the same number of products of codes of these bits, "
               "without a bias"],
    )  # fmt: skip
    graph = quantize(path, data, profile=PROFILE, effort="plain").graph
    for found in accumulators(lower(graph)):
        specs = [spec_if_any(graph.nodes[v]) for v in graph.nodes[found.layer].inputs]
        reach = [max(-spec.lo, spec.hi) if spec else 255 for spec in specs]
        worst = int(found.terms * reach[0] * reach[1]).bit_length() + 1
        channels = f"{found.widths.min()} to {found.widths.max()}"
        low, high = int(found.lows.min()), int(found.highs.max())
        made.add(found.layer, found.op, found.terms, low, high, found.width, channels, worst,
                 found.exact_in)  # fmt: skip
    return made


def main(
    json_file: JsonFile = None,
) -> None:
    """Print a table for each network."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import_tensorflow_quietly()
    report("benchmarks.accumulators", (table(*network) for network in networks()), json_file)


if __name__ == "__main__":
    typer.run(main)
