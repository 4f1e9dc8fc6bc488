"""Bandwidth of the CUDA kernels beside a copy: ``python -m benchmarks.cuda_quantizer``.

It times the quantizer and the epilogue of a layer. It needs a GPU, its driver and `_cuda.so`, and
no TensorFlow. All variants take turns on one stream. Events around a series of launches measure the
time, after a warm-up; the table has medians over the rounds. Each launch of a series has its own
tensors, which together are larger than the GPU's caches. The bytes of a variant are those that it
must read and write: two tensors for a copy (cuMemcpyDtoDAsync) and for the forward pass, three for
the backward pass, whose time is that of both its kernels.
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
OnTensors = Callable[["Tensors"], None]


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
    """Gigabytes per second of each variant."""
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

    found = bandwidth(sets, size * width, partial_of(cuda.quantize, size, quantizer), backward)
    for pointer in (log2_t, sums, workspace):
        device.free(pointer)
    return found


def measure_epilogue(size: int, activation: str, channels: int) -> dict[str, float]:
    """Gigabytes per second of each variant, with the epilogue in place of the quantizer."""
    size = size // channels * channels
    array = np.random.default_rng(0).normal(size=size).astype(np.float32)
    device = gpu()
    count = max(2, CACHES // array.nbytes)
    sets = [
        Tensors(device.put(array), device.put(array), device.empty(array.nbytes))
        for _ in range(count)
    ]
    log2_t = device.put(np.full(1, 2, np.float32))
    bias, high = (device.put(np.full(channels, value, np.float32)) for value in (0.5, 1.5))
    inner, outer = (cuda.CudaCodes(log2_t, 15, -32768, 32767), cuda.CudaCodes(log2_t, 8, 0, 255))
    epilogue = cuda.CudaEpilogue(inner, outer, bias, high, channels, activation)
    sums = [device.empty(8 * n) for n in (1, 1, channels, channels)]
    workspace = device.empty(cuda.epilogue_workspace_bytes(size, epilogue))

    def backward(t: Tensors) -> None:
        to = cuda.EpilogueGradients(t.out, *sums)
        cuda.epilogue_gradients(t.x, t.g, to, size, epilogue, workspace)

    found = bandwidth(sets, array.nbytes, partial_of(cuda.epilogue, size, epilogue), backward)
    for pointer in (log2_t, bias, high, *sums, workspace):
        device.free(pointer)
    return found


def partial_of(kernel: Callable[..., None], *arguments: object) -> OnTensors:
    """The forward pass as a function of its tensors."""
    return lambda t: kernel(t.x, t.out, *arguments)


def bandwidth(
    sets: list[Tensors], size: int, forward: OnTensors, backward: OnTensors
) -> dict[str, float]:
    """Gigabytes per second of a copy and of both passes over tensors of `size` bytes; frees
    them.
    """
    times = seconds(
        {
            "copy": [partial(gpu().copy, t.out, t.x, size) for t in sets],
            "forward": [partial(forward, t) for t in sets],
            "backward": [partial(backward, t) for t in sets],
        }
    )
    for pointer in (p for t in sets for p in (t.x, t.g, t.out)):
        gpu().free(pointer)
    tensors = {"copy": 2, "forward": 2, "backward": 3}
    return {name: tensors[name] * size / taken / 1e9 for name, taken in times.items()}


def measured(device: Gpu, sizes: list[int], channels: list[int]) -> Table:
    """The bandwidth of a copy, and the kernels' shares of it."""
    table = Table(
        f"Bandwidth on {device.name}",
        {"kernel": "", "elements": ",d", "type": "", "channels": "d", "copy, GB/s": ".0f",
         "forward": ".0%", "backward": ".0%"},
    )  # fmt: skip
    for size in sizes:
        for number in channels:
            found = {("quantizer", dtype): measure(size, dtype, number) for dtype in cuda.TYPES}
            for kind in ("relu", "relu6"):
                found[f"epilogue, {kind}", "float32"] = measure_epilogue(size, kind, number)
            for (kernel, dtype), speeds in found.items():
                shares = (speeds[name] / speeds["copy"] for name in ("forward", "backward"))
                table.add(kernel, size, dtype, number, speeds["copy"], *shares)
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
