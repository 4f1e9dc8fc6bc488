"""The fused TensorFlow ops: find their library and load it late.

The library uses only TensorFlow's C API, so that one build works with every TensorFlow. It is
loaded on first use. A SavedModel that contains its ops must be loaded after `fused_ops()`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import qgraph
from qgraph import kernels
from qgraph.errors import UsageError
from qgraph.foreign import Tensor, TFModule

LIBRARY = "_tf_ops.so"


@dataclass(frozen=True)
class FusedOps:
    """The loaded module of ops or None; `why` is its file, or the reason why it is missing."""

    ops: TFModule | None
    why: str


@functools.cache
def fused_ops() -> FusedOps:
    """Load the ops once, and register their gradients."""
    import tensorflow as tf

    fused = load(library_path())
    if fused.ops is not None:
        tf.RegisterGradient("QgraphQuantize")(_gradient)
        tf.RegisterGradient("QgraphEpilogue")(_epilogue_gradient)
    return fused


def load(path: Path | None) -> FusedOps:
    """Load a library of the ops. None, or one that does not load, gives a reason instead."""
    import tensorflow as tf

    if path is None:
        return FusedOps(None, f"{LIBRARY} is not installed: this is a source checkout")
    try:
        return FusedOps(tf.load_op_library(str(path)), str(path))
    except (tf.errors.OpError, OSError, RuntimeError) as error:
        return FusedOps(None, f"TensorFlow {tf.__version__} cannot load {path}: {error}")


def library_path(name: str = LIBRARY) -> Path | None:
    """The path of a native library; None if it is not installed.

    It lies in the folder of the package or, in an editable install, beside the native kernels.
    """
    folders = [Path(qgraph.__file__).parent]
    if kernels.backend().startswith("native: "):
        folders.append(Path(kernels.backend().removeprefix("native: ")).parent)
    return next((f / name for f in folders if (f / name).exists()), None)


def set_threads(count: int) -> None:
    """Limit the threads of the fused ops; TensorFlow's own ops have another setting.

    Raises UsageError for fewer than 1.
    """
    if count < 1:
        raise UsageError(f"the number of threads must be at least 1, not {count}")
    path = library_path()
    if fused_ops().ops is not None and path is not None:
        ctypes.CDLL(str(path)).qgraph_set_threads(count)


def _gradient(op: TFModule, upstream: Tensor) -> Tensor:
    names = ("bits", "signed", "rounding", "offset")
    return _called("qgraph_quantize_grad", names, op, upstream)


def _epilogue_gradient(op: TFModule, upstream: Tensor) -> Tensor:
    names = ("inner_bits", "inner_signed", "bits", "signed", "rounding", "activation")
    return _called("qgraph_epilogue_grad", names, op, upstream)


def _called(gradient: str, attributes: Sequence[str], op: TFModule, upstream: Tensor) -> Tensor:
    known = {name: op.get_attr(name) for name in attributes}
    return getattr(fused_ops().ops, gradient)(upstream, *op.inputs, **known)
