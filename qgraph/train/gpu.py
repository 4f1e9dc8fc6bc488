"""The fused ops on GPUs: find their libraries, and build the one that depends on TensorFlow.

TensorFlow's C API does not give the stream of its own GPUs. `gpu_stream.cpp` does, compiled against
the TensorFlow that is installed; the rest is in `_tf_ops.so` and `_cuda.so`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from qgraph import __version__
from qgraph.errors import UsageError
from qgraph.train.cuda import CudaKernels, cuda_kernels
from qgraph.train.fused import FusedOps, fused_ops, library_path

SOURCE = Path(__file__).with_name("gpu_stream.cpp")
COMPILERS = ("g++", "clang++", "c++")
BUILD = "build it: qgraph doctor --build-cuda"
# The order of Functions in fused_ops/tf/gpu_ops.cpp, after the stream.
FUNCTIONS = (
    "quantize", "workspace", "quantize_gradients",
    "epilogue_forward", "epilogue_workspace", "epilogue_gradients",
)  # fmt: skip


def stream_library() -> Path:
    """The path of the compiled library in the cache.

    Its name depends on TensorFlow's version and flags, the source and the version of qgraph.
    """
    import tensorflow as tf

    cache = Path(os.environ.get("QGRAPH_CACHE", Path.home() / ".cache" / "qgraph"))
    flags = " ".join(sorted(tf.sysconfig.get_compile_flags()))
    text = SOURCE.read_text() + flags + __version__
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return cache / f"gpu-stream-tensorflow-{tf.__version__}-{digest}.so"


def build() -> Path:
    """Compile the library and return its path. Raises UsageError."""
    import tensorflow as tf

    if not tf.test.is_built_with_cuda():
        raise UsageError(f"TensorFlow {tf.__version__} is built without CUDA; install tensorflow")
    target = stream_library()
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_suffix(f".{os.getpid()}")
    command = [compiler(), "-shared", "-fPIC", "-O1", "-DNDEBUG", "-w"]
    command += [*tf.sysconfig.get_compile_flags(), str(SOURCE), "-o", str(draft)]
    command += [*tf.sysconfig.get_link_flags(), "-Wl,--no-undefined"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        raise UsageError(f"{command[0]} cannot compile {SOURCE}: {''.join(lines[:1])}")
    draft.replace(target)
    return target


def compiler() -> str:
    """The C++ compiler to use: CXX, or the first that is found. Raises UsageError."""
    names = [name for name in (os.environ.get("CXX"), *COMPILERS) if name]
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise UsageError(f"no C++ compiler: install one of {', '.join(COMPILERS)}, or set CXX")
    return found


@functools.cache
def gpu_ops() -> FusedOps:
    """The fused ops with kernels for GPUs, registered once; without them, the reason."""
    path = stream_library()
    if not path.exists():
        return FusedOps(None, f"the fused ops are not built for GPUs; {BUILD}")
    return register(path, cuda_kernels(), "GPU", 0)


def register(path: Path, kernels: CudaKernels, device: str, priority: int) -> FusedOps:
    """Give the fused ops these kernels for a device, with streams by the library at `path`."""
    fused = fused_ops()
    library = library_path()
    if fused.ops is None or kernels.library is None or library is None:
        return FusedOps(None, fused.why if fused.ops is None else kernels.why)
    try:
        functions = [ctypes.CDLL(str(path)).qgraph_stream]
        run = ctypes.CDLL(str(library)).qgraph_register_gpu
    except (OSError, AttributeError) as error:
        return FusedOps(None, f"cannot load {path}: {error}; {BUILD}")
    functions += [getattr(kernels.library, f"qgraph_cuda_{name}") for name in FUNCTIONS]
    pointers = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    run((ctypes.c_void_p * len(pointers))(*pointers), device.encode(), priority)
    return FusedOps(fused.ops, f"{path}, {kernels.why}")
