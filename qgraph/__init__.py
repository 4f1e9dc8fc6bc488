"""qgraph: a compiler from trained TensorFlow networks to exact fixed-point ones.

import qgraph
result = qgraph.quantize("model.pb", "calib.npz")
result.save("out")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qgraph.compiler import Quantized, quantize
    from qgraph.frontends import load
    from qgraph.optimized import Optimized, optimize

    __version__: str

__all__ = ["Optimized", "Quantized", "__version__", "load", "optimize", "quantize"]

_HOMES = {
    "Optimized": "qgraph.optimized",
    "optimize": "qgraph.optimized",
    "Quantized": "qgraph.compiler",
    "load": "qgraph.frontends",
    "quantize": "qgraph.compiler",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `import qgraph` alone stays quick."""
    if name == "__version__":
        return _version()
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module `qgraph` has no attribute `{name}`")


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("qgraph")
    except metadata.PackageNotFoundError:
        return "not installed"
