"""The native extension, where it is built."""

from __future__ import annotations

import importlib
from types import ModuleType

from qgraph.kernels.interface import INTERFACE


def load() -> tuple[ModuleType | None, str]:
    """Import the extension; return it, or None, and say where it is or why it is not used.

    One that was built from other sources than this Python code is not used.
    """
    try:
        module = importlib.import_module("qgraph._native")
    except ImportError as error:
        return None, f"numpy: the native extension isn't available ({error})"
    if getattr(module, "INTERFACE", None) != INTERFACE:
        return None, f"numpy: {module.__file__} was built from other sources; rebuild: make venv"
    return module, f"native: {module.__file__}"
