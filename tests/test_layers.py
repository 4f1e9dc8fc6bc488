"""Imports go one way: no room imports from one that is built on it (docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.rooms import LAYERS
from tests.helpers.sources import needs_sources

pytestmark = needs_sources

ROOT = Path(__file__).parents[1]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def modules() -> Iterator[tuple[str, Path]]:
    """Each module and the room it is in."""
    for folder in ("qgraph", "transforms", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(ROOT / "qgraph" if folder == "qgraph" else ROOT)
            room = inside.parts[0].removesuffix(".py")
            if not room.startswith("__"):  # what users import, and `python -m qgraph`
                yield room, path


def imported(path: Path) -> Iterator[str]:
    """The rooms that a module imports from, late imports too."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if names == ["qgraph"]:
            names = [f"qgraph.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (n.split(".")[1] for n in names if n.startswith("qgraph."))


@pytest.mark.parametrize(("room", "path"), list(modules()), ids=lambda v: getattr(v, "name", v))
def test_no_module_imports_what_is_above_it(room: str, path: Path) -> None:
    above = {other for other in imported(path) if LEVEL.get(other, 0) > LEVEL[room]}
    assert not above


def test_every_import_is_of_a_room_that_has_a_place() -> None:
    found = {other for _, path in modules() for other in imported(path)}
    assert found - {"__version__"} <= LEVEL.keys()
