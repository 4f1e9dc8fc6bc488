"""Time each native kernel beside its numpy version: ``python -m benchmarks.kernels``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import typer

from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph import kernels
from qgraph.kernels import plain

Run = Callable[[], object]

SIZES = (1 << 16, 1 << 20, 1 << 24)
ROUNDS = 7


def milliseconds(variants: list[Run]) -> list[float]:
    """Median time of each variant. Variants take turns, so that disturbances affect all of them."""
    for run in variants:
        run()
    times: list[list[float]] = [[] for _ in variants]
    for _ in range(ROUNDS):
        for taken, run in zip(times, variants, strict=True):
            start = time.perf_counter()
            run()
            taken.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(taken) for taken in times]


def measured() -> Table:
    """A row for each size and kernel."""
    filters = np.random.default_rng(0).normal(size=(3, 3, 64)).astype(np.float32)
    times = ("ms", "numpy ms", "one copy ms")
    table = Table(
        f"Native kernels: {kernels.backend().partition(':')[0]}",
        {"kernel": "", "values": ",d", **dict.fromkeys(times, ".3f")},
        notes=[f"medians of {ROUNDS} rounds"],
    )
    for size in SIZES:
        x = np.random.default_rng(size).normal(size=size).astype(np.float32)
        g = np.cos(x)
        out = np.empty_like(x)
        images = x.reshape(-1, 16, 16, 64)
        geometry = (1, 1), (1, 1), (1, 1, 1, 1)
        rows: dict[str, tuple[Run, Run]] = {
            "minmax": (partial(kernels.minmax, x), partial(plain.minmax, x)),
            "histogram": (
                partial(kernels.histogram, x, 3, 11),
                partial(plain.histogram, x, 3, 11),
            ),
            "quantize": (
                partial(kernels.quantize, x, 5, -128, 127, out=out),
                partial(plain.quantize, x, 5, -128, 127),
            ),
            "quantize_gradients": (
                partial(kernels.quantize_gradients, x, g, 5, -128, 127, out=out),
                partial(plain.quantize_gradients, x, g, 5, -128, 127),
            ),
            "depthwise_conv2d": (
                partial(kernels.depthwise_conv2d, images, filters, *geometry),
                partial(plain.depthwise_conv2d, images, filters, *geometry),
            ),
        }
        for name, variants in rows.items():
            table.add(name, size, *milliseconds([*variants, partial(np.copyto, out, x)]))
    return table


def main(json_file: JsonFile = None) -> None:
    """Print one row for each kernel and size."""
    report("benchmarks.kernels", [measured()], json_file)


if __name__ == "__main__":
    typer.run(main)
