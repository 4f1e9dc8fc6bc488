"""A pytest plugin: `--require-extras` runs the tests of optional packages, and skips none of them.

Without it, `pytest.importorskip` skips a test whose package is missing; with it, such a test fails,
unless the package is a large one that no extra installs.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

LARGE = ("envpool", "ray.rllib")  # hundreds of megabytes, and they fix versions of others
_importorskip = pytest.importorskip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-extras",
        action="store_true",
        help="run only files with tests of optional packages; a missing package fails its test",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--require-extras"):
        patch = pytest.MonkeyPatch()
        patch.setattr(pytest, "importorskip", _required)
        config.add_cleanup(patch.undo)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--require-extras") or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text("utf-8")
    return None if "importorskip" in text or "mark.extra" in text else True


def _required(modname: str, minversion: str | None = None, **options: Any) -> Any:
    if modname in LARGE:
        return _importorskip(modname, minversion, **options)
    return importlib.import_module(modname)
