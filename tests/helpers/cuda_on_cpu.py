"""Run the CUDA kernels on the CPU, with its memory in place of a GPU's."""

from __future__ import annotations

import ctypes
import subprocess
import time
from pathlib import Path

import numpy as np

from benchmarks.gpu import Event
from qgraph.ir.types import Array
from qgraph.train.gpu import compiler

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "fused_ops" / "tests" / "emulated" / "cuda_on_cpu.cpp"


def compiled(folder: Path) -> Path:
    """Compile a library with the functions of `_cuda.so` and a stream, for the CPU."""
    library = folder / "cuda_on_cpu.so"
    command = [compiler(), "-shared", "-fPIC", "-std=c++17", "-O1", "-ffp-contract=off"]
    command += ["-I", str(ROOT / "fused_ops"), str(SOURCE), "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True)
    return library


class CpuAsGpu:
    """The interface of `benchmarks.gpu.Gpu` with numpy's memory and the clock of the host."""

    name = "a CPU in place of a GPU"

    def __init__(self) -> None:
        self._memory: dict[int, Array] = {}
        self._times: dict[int, float] = {}

    @property
    def blocks(self) -> int:
        """Blocks of memory that are not freed yet."""
        return len(self._memory)

    def empty(self, size: int) -> int:
        block = np.full(max(size, 1), 0xFF, np.uint8)
        self._memory[block.ctypes.data] = block
        return block.ctypes.data

    def put(self, array: Array) -> int:
        pointer = self.empty(array.nbytes)
        ctypes.memmove(pointer, np.ascontiguousarray(array).ctypes.data, array.nbytes)
        return pointer

    def free(self, pointer: int) -> None:
        del self._memory[pointer]

    def copy(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    def event(self) -> Event:
        event = Event(len(self._times) + 1)
        self._times[event.value or 0] = time.perf_counter()
        return event

    def milliseconds(self, start: Event, end: Event) -> float:
        return 1e3 * (self._times[end.value or 0] - self._times[start.value or 0])
