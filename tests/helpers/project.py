"""The metadata of the distribution in pyproject.toml, and the table of its extras."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qgraph.quant.key_tables import markdown_table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PURPOSES = {
    "demo": "the data of `examples/digits/`",
    "qonnx": "the executor that checks `qonnx` exports in `qgraph verify`",
    "tflite": "`.tflite` files, and the executors that check them in `qgraph verify`",
    "figures": "figures of `qgraph rl evaluate`, `qgraph rl train` and of the benchmarks",
    "rl": "tasks of dm_control, and images of them (with libosmesa6)",
    "atari": "Atari games (`ALE/Pong-v5`)",
    "ray": "actors on several machines",
    "sb3": "stable-baselines3: reading, training and exporting its policies (brings PyTorch)",
    "torchrl": "collectors of TorchRL that act quantized (brings PyTorch)",
    "energy": "`--energy`: the estimated energy of a run",
    "docs": "development: the documentation site (`make docs`)",
    "mutation": "`python -m benchmarks.mutation`",
    "extras": "development: tests of all optional packages (`make test-extras`)",
    "test": "development: the tests, without those of optional packages",
    "dev": "development: tests, linters, types, wheels (`make venv`)",
}


def pyproject() -> Mapping[str, Any]:
    """pyproject.toml as data."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def project() -> Mapping[str, Any]:
    """The table `[project]` of pyproject.toml."""
    return pyproject()["project"]


def names(requirements: Sequence[str]) -> list[str]:
    """Names of packages, without versions and markers."""
    found = [re.match(r"[\w.-]+(\[[\w,-]+\])?", one) for one in requirements]
    return [match[0] for match in found if match]


def extras_table() -> str:
    """The extras as a Markdown table."""
    extras = project()["optional-dependencies"]
    rows = [
        (f"`{extra}`", ", ".join(names(packages)), PURPOSES[extra])
        for extra, packages in extras.items()
    ]
    return markdown_table(("extra", "packages", "for"), rows)


TABLES: Mapping[str, Callable[[], str]] = MappingProxyType({"extras": extras_table})
