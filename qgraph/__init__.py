"""qgraph: a compiler from trained TensorFlow and ONNX networks to exact fixed-point ones.

`help(qgraph.quantize)` describes a function; `dir(qgraph)` lists all of them.

Examples:
    >>> import qgraph
    >>> result = qgraph.quantize("model.pb", "calib.npz")
    >>> path = result.save("out")
    >>> found = qgraph.evaluate("out", "test.npz")
    >>> qgraph.verify("out", forms=["engine"]).equal
    True
"""

from __future__ import annotations

# As in `typing`, which takes longer to import than Python takes to start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from qgraph.compiler import quantize
    from qgraph.evaluation import Evaluation, evaluate
    from qgraph.exports import export
    from qgraph.frontends import load
    from qgraph.optimized import Optimized, optimize
    from qgraph.quantized import Quantized
    from qgraph.reporting.write import report
    from qgraph.runtime import Session
    from qgraph.verification.verify import Verified, verify

    __version__: str

__all__ = [
    "Evaluation",
    "Optimized",
    "Quantized",
    "Session",
    "Verified",
    "__version__",
    "evaluate",
    "export",
    "load",
    "optimize",
    "quantize",
    "report",
    "verify",
]

_HOMES = {
    "Evaluation": "qgraph.evaluation",
    "Optimized": "qgraph.optimized",
    "Quantized": "qgraph.quantized",
    "Session": "qgraph.runtime",
    "Verified": "qgraph.verification.verify",
    "evaluate": "qgraph.evaluation",
    "export": "qgraph.exports",
    "load": "qgraph.frontends",
    "optimize": "qgraph.optimized",
    "quantize": "qgraph.compiler",
    "report": "qgraph.reporting.write",
    "verify": "qgraph.verification.verify",
}


def __getattr__(name: str) -> object:
    """Import on first use: `import qgraph` alone stays quick."""
    if name == "__version__":
        from qgraph.distribution import version

        return version()
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module `qgraph` has no attribute `{name}`")


def __dir__() -> list[str]:
    """The public names, whether they are imported yet or not."""
    return sorted(__all__)
