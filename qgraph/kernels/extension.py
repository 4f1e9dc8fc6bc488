"""The native extension, if it is built."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from types import ModuleType

from qgraph.kernels.interface import INTERFACE

PACKAGE = Path(__file__).absolute().parents[1]


def load() -> tuple[ModuleType | None, str]:
    """Import the extension; return it or None, and its path or the reason why it is not used.

    An extension that was built from other sources than this Python code is not used.
    """
    try:
        module = importlib.import_module("qgraph._native")
    except ImportError as error:
        installed = _installed_elsewhere()
        if installed is not None:
            why = (
                f"{PACKAGE} is a source checkout without native code, but is imported before the "
                f"installed {installed}; run Python in another directory"
            )
            warnings.warn(why, RuntimeWarning, stacklevel=2)
            return None, f"numpy: {why}"
        return None, f"numpy: the native extension isn't available ({error})"
    if getattr(module, "INTERFACE", None) != INTERFACE:
        return None, f"numpy: {module.__file__} was built from other sources; rebuild: make venv"
    return module, f"native: {module.__file__}"


def _installed_elsewhere() -> Path | None:
    """The path of an installed qgraph with the extension, which Python finds after this one."""
    folders = (Path(entry, "qgraph") for entry in sys.path)
    return next(
        (f for f in folders if f.absolute() != PACKAGE and any(f.glob("_native*.so"))), None
    )
