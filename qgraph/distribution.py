"""The name that qgraph is installed by, its version, and commands that install what is missing."""

from __future__ import annotations

import shlex
from importlib import metadata

NAME = "qgraph-compiler"  # as in pyproject.toml: `qgraph` on PyPI is another project


def version() -> str:
    """The version of the installed distribution, or `not installed`."""
    return version_of(NAME)


def version_of(distribution: str) -> str:
    """The version of any installed distribution, or `not installed`."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def install_hint(*packages: str, extra: str | None = None) -> str:
    """The command that installs missing packages.

    Args:
        packages: Their names for pip.
        extra: The extra of qgraph that holds them; without, they are base dependencies.
    """
    command = shlex.join(["pip", "install", *packages])
    return f"{command}, or pip install '{NAME}[{extra}]'" if extra else command
