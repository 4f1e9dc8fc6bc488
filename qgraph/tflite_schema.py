"""The published schema of `.tflite` files, as the package `tflite` has it."""

from __future__ import annotations

from qgraph.distribution import install_hint
from qgraph.errors import UnsupportedError
from qgraph.foreign import FlatObject

EXTRA = "tflite"
METADATA = "qgraph"  # the name of what qgraph stores about a file
IDENTIFIER = b"TFL3"


def schema() -> FlatObject:
    """The package `tflite`. Raises UnsupportedError if it is not installed."""
    try:
        import flatbuffers  # noqa: F401
        import tflite
    except ImportError:
        raise UnsupportedError(
            "tflite is not installed", hint=install_hint("flatbuffers", "tflite", extra=EXTRA)
        ) from None
    return tflite
