"""A pytest plugin: `--require-extras` makes a package that a test needs and lacks a failure.

Otherwise `pytest.importorskip` skips such tests, and nobody learns that they never run.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-extras",
        action="store_true",
        help="a test whose optional package is missing fails, and is not skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--require-extras"):
        patch = pytest.MonkeyPatch()
        patch.setattr(pytest, "importorskip", _required)
        config.add_cleanup(patch.undo)


def _required(modname: str, minversion: str | None = None, **_: Any) -> Any:
    return importlib.import_module(modname)
