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
from qgraph.kernels.plain import Stage

Run = Callable[[], object]

SIZES = (1 << 16, 1 << 20, 1 << 24)
ROUNDS = 7
CHANNELS = 64


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
    filters = np.random.default_rng(0).normal(size=(3, 3, CHANNELS)).astype(np.float32)
    centre = np.zeros(CHANNELS)
    ones = np.ones(CHANNELS, np.float32)
    stage = Stage((9, -32768, 32767, "half_even"), bias=ones, low=0.0, ceiling=ones)
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
        by_channel = x.reshape(-1, CHANNELS)
        images = x.reshape(-1, 16, 16, CHANNELS)
        geometry = (1, 1), (1, 1), (1, 1, 1, 1)
        rows: dict[str, tuple[Run, Run]] = {
            "minmax": (partial(kernels.minmax, x), partial(plain.minmax, x)),
            "histogram": (
                partial(kernels.histogram, x, 3, 11),
                partial(plain.histogram, x, 3, 11),
            ),
            "channel_sums": (
                partial(kernels.channel_sums, by_channel),
                partial(plain.channel_sums, by_channel),
            ),
            "channel_squares": (
                partial(kernels.channel_squares, by_channel, centre),
                partial(plain.channel_squares, by_channel, centre),
            ),
            "squares": (partial(kernels.squares, x, g), partial(plain.squares, x, g)),
            "tails": (
                partial(kernels.tails, x, -1.0, 1.0, 0.1),
                partial(plain.tails, x, -1.0, 1.0, 0.1),
            ),
            "stage": (
                partial(kernels.stage, by_channel, stage, out=out.reshape(by_channel.shape)),
                partial(plain.stage, by_channel, stage),
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
