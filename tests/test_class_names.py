"""Names in the product packages: a class name stands for one class, a file name for its content."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.helpers.sources import needs_sources

pytestmark = needs_sources

ROOT = Path(__file__).parents[1]
PACKAGES = ("qgraph", "transforms", "cli")
# Any file could have these names.
VAGUE = frozenset(
    {
        "common",
        "form",
        "helpers",
        "keep",
        "kept",
        "misc",
        "notes",
        "parts",
        "util",
        "utils",
        "values",
    }
)


def product_files() -> list[Path]:
    """Every Python file that users install, each once: links are not followed."""
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def repeated_classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Class names that several classes have, with the file and line of each; `sources` by file."""
    places = defaultdict(list)
    for file, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file}:{node.lineno}")
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def relative(paths: Iterable[Path]) -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def test_no_class_name_is_used_twice() -> None:
    assert repeated_classes(relative(product_files())) == {}


def test_repeated_names_are_found_wherever_they_are_defined() -> None:
    nested = "def f():\n    class Layer:\n        pass\n"
    assert repeated_classes(
        {"a.py": "class Layer: ...\n", "b.py": nested, "c.py": "Layer = 1\n"}
    ) == {"Layer": ["a.py:1", "b.py:2"]}


def test_no_file_has_a_name_that_fits_any_content() -> None:
    assert [str(path) for path in product_files() if path.stem in VAGUE] == []
