"""Bandwidth of the CUDA kernels beside a copy: ``python -m benchmarks.cuda_quantizer``.

Needs a GPU, its driver and `_cuda.so`; no TensorFlow. All variants take turns on one stream, each
timed by events around a run of launches, warmed before; a figure is the median of its rounds. Each
launch of a run has its own tensors, as many as it takes to be larger than the GPU's caches. The
bytes of a variant are what it has to read and write: two tensors for a copy (cuMemcpyDtoDAsync) and
the forward pass, three for the backward pass, whose figure holds both of its kernels.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.gpu import Array, Gpu, gpu
from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph.train import cuda

SIZES = (1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28)
ROUNDS = 15
CACHES = 1 << 28  # bytes: more than any cache of a GPU
Launch = Callable[[], None]


@dataclass(frozen=True)
class Tensors:
    """Tensors of one launch."""

    x: int
    g: int
    out: int


def seconds(launches: dict[str, list[Launch]]) -> dict[str, float]:
    """Median time of one launch of each variant."""
    times: dict[str, list[float]] = {name: [] for name in launches}
    for number in range(-3, ROUNDS):
        for name, run in launches.items():
            start = gpu().event()
            for launch in run:
                launch()
            taken = gpu().milliseconds(start, gpu().event()) / 1e3 / len(run)
            if number >= 0:
                times[name].append(taken)
    return {name: statistics.median(taken) for name, taken in times.items()}


def measure(size: int, dtype: str, channels: int) -> dict[str, float]:
    """Gigabytes a second of each variant."""
    width = 4 if dtype == "float32" else 2
    numbers = np.random.default_rng(0).normal(size=size).astype(np.float32)
    # The upper half of a float32 is a bfloat16.
    upper = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    arrays: dict[str, Array] = {"float32": numbers, "bfloat16": upper}
    array = arrays.get(dtype, numbers.astype(np.float16))
    device = gpu()
    count = max(2, CACHES // array.nbytes)
    sets = [
        Tensors(device.put(array), device.put(array), device.empty(array.nbytes))
        for _ in range(count)
    ]
    log2_t = device.put(np.full(channels, 2, np.float32))
    quantizer = cuda.CudaQuantizer(cuda.CudaCodes(log2_t, 7, -128, 127), channels, dtype=dtype)
    sums = device.empty(8 * channels)
    workspace = device.empty(cuda.workspace_bytes(size, channels))

    def backward(t: Tensors) -> None:
        cuda.quantize_gradients(t.x, t.g, t.out, sums, size, quantizer, workspace)

    times = seconds(
        {
            "copy": [partial(device.copy, t.out, t.x, array.nbytes) for t in sets],
            "forward": [partial(cuda.quantize, t.x, t.out, size, quantizer) for t in sets],
            "backward": [partial(backward, t) for t in sets],
        }
    )
    for pointer in [log2_t, sums, workspace, *(p for t in sets for p in (t.x, t.g, t.out))]:
        device.free(pointer)
    tensors = {"copy": 2, "forward": 2, "backward": 3}
    return {name: tensors[name] * size * width / taken / 1e9 for name, taken in times.items()}


def measured(device: Gpu, sizes: list[int], channels: list[int]) -> Table:
    """The copy's bandwidth, and the shares of it that the kernels reach."""
    table = Table(
        device.name,
        {"elements": ",d", "type": "", "channels": "d", "copy, GB/s": ".0f", "forward": ".0%",
         "backward": ".0%"},
    )  # fmt: skip
    for size in sizes:
        for dtype in cuda.TYPES:
            for number in channels:
                found = measure(size, dtype, number)
                shares = (found[name] / found["copy"] for name in ("forward", "backward"))
                table.add(size, dtype, number, found["copy"], *shares)
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--channels", type=int, nargs="+", default=[1, 64])
    add_json_option(parser)
    given = parser.parse_args()
    use, why = cuda.cuda_kernels().status()
    if use != "ready":
        parser.exit(1, f"{use}: {why}\n")
    tables = [measured(gpu(), given.sizes, given.channels)]
    report("benchmarks.cuda_quantizer", tables, given.json)


if __name__ == "__main__":
    main()
