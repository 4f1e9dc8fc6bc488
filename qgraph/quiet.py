"""Import TensorFlow without the notices that it prints at every log level.

They are written directly to file descriptor 2, which is redirected during the import.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

NAME = "tensorflow"
ERRORS_ONLY = ("TF_CPP_MIN_LOG_LEVEL", "3")


@contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """While this context is active, TensorFlow is imported silently.

    A context, or the decorator `@quiet_tensorflow()`.
    """
    if NAME in sys.modules:
        yield
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def import_tensorflow_quietly() -> None:
    """Import TensorFlow now, silently."""
    with quiet_tensorflow():
        importlib.import_module(NAME)


class _Finder(MetaPathFinder):
    """Finds TensorFlow like the usual finder, with a loader that is silent."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == NAME else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Silent(spec.loader)
        return spec


class _Silent(Loader):
    """Runs a module silently; the module keeps its usual loader."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Read once, at import; it also applies to later messages (a session searches for a GPU).
        os.environ.setdefault(*ERRORS_ONLY)
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        with silenced():
            self.loader.exec_module(module)


@contextmanager
def silenced() -> Iterator[None]:
    """Discard everything that is written to file descriptor 2."""
    saved = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
