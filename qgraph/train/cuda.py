"""The CUDA kernels of the quantizer and the epilogue, called with device pointers.

Pointers are to a GPU's memory, as integers (cupy's `a.data.ptr`, torch's `t.data_ptr()`), and so is
a stream (0 is the default one). Results are those of the CPU kernels to the bit;
fused_ops/cuda/quantize.h and epilogue.h state what the memory must hold.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from ctypes import Structure, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path

from qgraph.errors import UsageError
from qgraph.ir.types import ROUNDINGS, rounding_of_numbers
from qgraph.train.fused import library_path

LIBRARY = "_cuda.so"
TYPES = ("float32", "bfloat16", "float16")  # the order of Type in fused_ops/core/quantize.h
ACTIVATIONS = ("none", "relu", "relu6", "clip")  # the order of Kind in cuda/epilogue_grid.h


@dataclass(frozen=True)
class CudaKernels:
    """The loaded library or None, and its file or the reason why it is missing."""

    library: ctypes.CDLL | None
    why: str

    def status(self) -> tuple[str, str]:
        """`ready`, `no GPU` or `not built`, and why."""
        if self.library is None:
            return "not built", self.why
        error = self.library.qgraph_cuda_check()
        return ("ready", self.why) if error is None else ("no GPU", f"{error.decode()}; {self.why}")


@dataclass(frozen=True)
class CudaCodes:
    """A quantizer with one exponent, `bits - ceil(log2_t)`; log2_t: float32 on the GPU."""

    log2_t: int
    bits: int
    low: float
    high: float


@dataclass(frozen=True)
class CudaQuantizer:
    """Arguments of both kernels. The codes' log2_t has one number per channel."""

    codes: CudaCodes
    channels: int = 1
    rounding: str = "half_even"
    dtype: str = "float32"


@dataclass(frozen=True)
class CudaEpilogue:
    """Arguments of both kernels. bias, and high for clip and relu6: float32, one per channel."""

    inner: CudaCodes
    outer: CudaCodes
    bias: int
    high: int
    channels: int
    activation: str = "none"
    rounding: str = "half_even"


@dataclass(frozen=True)
class EpilogueGradients:
    """Pointers to results: x in float32, the others in float64. high: for clip and relu6."""

    x: int
    inner_log2_t: int
    log2_t: int
    bias: int
    high: int


class _Quantizer(Structure):
    _fields_ = (
        ("log2_t", c_void_p),
        ("channels", c_int64),
        ("bits", c_int32),
        ("low", c_float),
        ("high", c_float),
        ("type", c_int32),
        ("rounding", c_int32),
    )


class _Codes(Structure):
    _fields_ = (("log2_t", c_void_p), ("bits", c_int32), ("low", c_float), ("high", c_float))


class _Epilogue(Structure):
    _fields_ = (
        ("inner", _Codes),
        ("outer", _Codes),
        ("bias", c_void_p),
        ("high", c_void_p),
        ("channels", c_int64),
        ("rounding", c_int32),
        ("activation", c_int32),
    )


class _EpilogueResults(Structure):
    _fields_ = (*((name, c_void_p) for name in EpilogueGradients.__annotations__),
                ("narrow", c_int32))  # fmt: skip


@functools.cache
def cuda_kernels() -> CudaKernels:
    """Load the library once. No GPU is needed for this."""
    return load(library_path(LIBRARY))


def load(path: Path | None) -> CudaKernels:
    """Load a library of the kernels. None, or one that does not load, gives a reason instead."""
    if path is None:
        return CudaKernels(None, f"{LIBRARY} is not installed: qgraph was built without nvcc")
    pointer, size = c_void_p, c_int64
    signatures: dict[str, tuple[object, Sequence[object]]] = {
        "check": (c_char_p, []),
        "quantize": (c_char_p, [pointer] * 3 + [size, pointer]),
        "workspace": (size, [size] * 2),
        "quantize_gradients": (c_char_p, [pointer] * 5 + [c_int, size] + [pointer] * 2),
        "epilogue_forward": (c_char_p, [pointer] * 3 + [size, pointer]),
        "epilogue_workspace": (size, [size, size, c_int]),
        "epilogue_gradients": (c_char_p, [pointer] * 4 + [size] + [pointer] * 2),
    }
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in signatures.items():
            function = getattr(library, f"qgraph_cuda_{name}")
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        return CudaKernels(None, f"cannot load {path}: {error}")
    return CudaKernels(library, str(path))


def quantize(x: int, y: int, count: int, quantizer: CudaQuantizer, stream: int = 0) -> None:
    """Queue the forward pass of `count` elements. Raises UsageError if CUDA refuses."""
    _check(_library().qgraph_cuda_quantize(byref(_quantizer(quantizer)), x, y, count, stream))


def quantize_gradients(
    x: int,
    g: int,
    gx: int,
    glog2t: int,
    count: int,
    quantizer: CudaQuantizer,
    workspace: int,
    stream: int = 0,
) -> None:
    """Queue the backward pass. glog2t: float64. Raises UsageError if CUDA refuses."""
    run = _library().qgraph_cuda_quantize_gradients
    _check(run(byref(_quantizer(quantizer)), x, g, gx, glog2t, 0, count, workspace, stream))


def workspace_bytes(count: int, channels: int) -> int:
    """Bytes of GPU memory that the quantizer's backward pass needs to work in."""
    return int(_library().qgraph_cuda_workspace(count, channels))


def epilogue(x: int, y: int, count: int, epilogue: CudaEpilogue, stream: int = 0) -> None:
    """Queue the forward pass of `count` elements. Raises UsageError if CUDA refuses."""
    run = _library().qgraph_cuda_epilogue_forward
    _check(run(byref(_epilogue(epilogue)), x, y, count, stream))


def epilogue_gradients(
    x: int,
    g: int,
    gradients: EpilogueGradients,
    count: int,
    epilogue: CudaEpilogue,
    workspace: int,
    stream: int = 0,
) -> None:
    """Queue the backward pass. Raises UsageError if CUDA refuses."""
    to = _EpilogueResults(**vars(gradients), narrow=0)
    run = _library().qgraph_cuda_epilogue_gradients
    _check(run(byref(_epilogue(epilogue)), x, g, byref(to), count, workspace, stream))


def epilogue_workspace_bytes(count: int, epilogue: CudaEpilogue) -> int:
    """Bytes of GPU memory that the epilogue's backward pass needs to work in."""
    kind = _index(epilogue.activation, ACTIVATIONS, "activation")
    return int(_library().qgraph_cuda_epilogue_workspace(count, epilogue.channels, kind))


def _quantizer(q: CudaQuantizer) -> _Quantizer:
    codes = q.codes
    return _Quantizer(
        codes.log2_t, q.channels, codes.bits, codes.low, codes.high,
        _index(q.dtype, TYPES, "dtype"), _rounding(q.rounding),
    )  # fmt: skip


def _epilogue(e: CudaEpilogue) -> _Epilogue:
    inner, outer = (_Codes(c.log2_t, c.bits, c.low, c.high) for c in (e.inner, e.outer))
    kind = _index(e.activation, ACTIVATIONS, "activation")
    return _Epilogue(inner, outer, e.bias, e.high, e.channels, _rounding(e.rounding), kind)


def _rounding(name: str) -> int:
    _index(name, ROUNDINGS, "rounding")
    return ROUNDINGS.index(rounding_of_numbers(name))


def _index(name: str, names: tuple[str, ...], what: str) -> int:
    if name not in names:
        raise UsageError(f"{what} must be one of {', '.join(names)}, not {name}")
    return names.index(name)


def _library() -> ctypes.CDLL:
    kernels = cuda_kernels()
    if kernels.library is None:
        raise UsageError(f"the CUDA kernels are not available: {kernels.why}")
    return kernels.library


def _check(error: bytes | None) -> None:
    if error is not None:
        raise UsageError(f"CUDA: {error.decode()}")
