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

    __version__: str

__all__ = ["Quantized", "__version__", "load", "quantize"]

_HOMES = {
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
