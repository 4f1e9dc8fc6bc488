"""The quantizer's CUDA kernels: their library, loaded late, and its functions on device pointers.

Pointers are to a GPU's memory, as integers (cupy's `a.data.ptr`, torch's `t.data_ptr()`), and so is
a stream (0 is the default one). What is computed is `qgraph.kernels`' `quantize` and
`quantize_gradients` to the bit; fused_ops/cuda/quantize.h states what is expected of the memory.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qgraph.errors import UsageError
from qgraph.ir.types import ROUNDINGS, rounding_of_numbers
from qgraph.train.fused import library_path

LIBRARY = "_cuda.so"
TYPES = ("float32", "bfloat16", "float16")  # the order of Type in fused_ops/core/quantize.h


@dataclass(frozen=True)
class CudaKernels:
    """The loaded library, or None; and which file, or why there is none."""

    library: ctypes.CDLL | None
    why: str

    def status(self) -> tuple[str, str]:
        """`ready`, `no GPU` or `not built`, and why."""
        if self.library is None:
            return "not built", self.why
        error = self.library.qgraph_cuda_check()
        return ("ready", self.why) if error is None else ("no GPU", f"{error.decode()}; {self.why}")


@dataclass(frozen=True)
class Quantizer:
    """Arguments of both kernels. f: int32 on the GPU, one per channel."""

    f: int
    channels: int
    low: float
    high: float
    rounding: str = "half_even"
    dtype: str = "float32"


@functools.cache
def cuda_kernels() -> CudaKernels:
    """Load the library once. That needs no GPU."""
    return load(library_path(LIBRARY))


def load(path: Path | None) -> CudaKernels:
    """Load a library of the kernels, if there is one."""
    if path is None:
        return CudaKernels(None, f"{LIBRARY} is not installed: qgraph was built without nvcc")
    try:
        library = ctypes.CDLL(str(path))
        whole, real, text = ctypes.c_int64, ctypes.c_float, ctypes.c_char_p
        pointer, number = ctypes.c_void_p, ctypes.c_int
        quantizer: list[Any] = [number, whole, pointer, whole, real, real, number]
        library.qgraph_cuda_check.restype = text
        library.qgraph_cuda_workspace.restype = whole
        library.qgraph_cuda_workspace.argtypes = [whole, whole]
        library.qgraph_cuda_quantize.restype = text
        library.qgraph_cuda_quantize.argtypes = [pointer] * 2 + quantizer + [pointer]
        library.qgraph_cuda_quantize_gradients.restype = text
        library.qgraph_cuda_quantize_gradients.argtypes = [pointer] * 4 + quantizer + [pointer] * 2
    except (OSError, AttributeError) as error:
        return CudaKernels(None, f"cannot load {path}: {error}")
    return CudaKernels(library, str(path))


def quantize(x: int, y: int, count: int, quantizer: Quantizer, stream: int = 0) -> None:
    """Queue the forward pass of `count` elements. Raises UsageError if CUDA refuses."""
    _check(_library().qgraph_cuda_quantize(x, y, *_arguments(count, quantizer), stream))


def quantize_gradients(
    x: int,
    g: int,
    gx: int,
    glog2t: int,
    count: int,
    quantizer: Quantizer,
    workspace: int,
    stream: int = 0,
) -> None:
    """Queue the backward pass. glog2t: float64. Raises UsageError if CUDA refuses."""
    arguments = _arguments(count, quantizer)
    run = _library().qgraph_cuda_quantize_gradients
    _check(run(x, g, gx, glog2t, *arguments, workspace, stream))


def workspace_bytes(count: int, channels: int) -> int:
    """Bytes of GPU memory that the backward pass needs to work in."""
    return int(_library().qgraph_cuda_workspace(count, channels))


def _arguments(count: int, q: Quantizer) -> tuple[int, int, int, int, float, float, int]:
    if q.dtype not in TYPES:
        raise UsageError(f"dtype must be one of {', '.join(TYPES)}, not {q.dtype}")
    if q.rounding not in ROUNDINGS:
        raise UsageError(f"rounding must be one of {', '.join(ROUNDINGS)}, not {q.rounding}")
    rounding = ROUNDINGS.index(rounding_of_numbers(q.rounding))
    return TYPES.index(q.dtype), count, q.f, q.channels, q.low, q.high, rounding


def _library() -> ctypes.CDLL:
    kernels = cuda_kernels()
    if kernels.library is None:
        raise UsageError(f"there are no CUDA kernels: {kernels.why}")
    return kernels.library


def _check(error: bytes | None) -> None:
    if error is not None:
        raise UsageError(f"CUDA: {error.decode()}")
