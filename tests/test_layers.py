"""Imports go one way: no package imports from one that is built on it (docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.levels import LAYERS
from tests.helpers.sources import needs_sources

pytestmark = needs_sources

ROOT = Path(__file__).parents[1]
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}


def modules() -> Iterator[tuple[str, Path]]:
    """Each module, and the package it is in."""
    for folder in ("qgraph", "transforms", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(ROOT / "qgraph" if folder == "qgraph" else ROOT)
            package = inside.parts[0].removesuffix(".py")
            if not package.startswith("__"):  # what users import, and `python -m qgraph`
                yield package, path


def imported(path: Path) -> Iterator[str]:
    """The packages that a module imports from, including late imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if names == ["qgraph"]:
            names = [f"qgraph.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (n.split(".")[1] for n in names if n.startswith("qgraph."))


@pytest.mark.parametrize(("package", "path"), list(modules()), ids=lambda v: getattr(v, "name", v))
def test_no_module_imports_what_is_above_it(package: str, path: Path) -> None:
    above = {other for other in imported(path) if LEVEL.get(other, 0) > LEVEL[package]}
    assert not above


def test_every_imported_package_has_a_level() -> None:
    found = {other for _, path in modules() for other in imported(path)}
    assert found - {"__version__"} <= LEVEL.keys()
