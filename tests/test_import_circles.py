"""No two product files need each other, and no pass imports from another pass.

Every import statement counts: those under functions and those for type checkers too, because a
circle hidden there still means that neither file can be read or changed alone. The one exception is
`qgraph/__init__.py`, whose imports are the names that users reach through the package. A parent
package that Python runs on the way to a submodule does not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import networkx

from tests.helpers.sources import needs_sources

pytestmark = needs_sources

ROOT = Path(__file__).parents[1]


def product_sources() -> dict[str, str]:
    """The source of each product file by module name."""
    sources = {}
    for folder in ("qgraph", "transforms", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts if folder == "qgraph" else ("qgraph", *parts)
            sources[".".join(parts).removesuffix(".__init__")] = path.read_text()
    del sources["qgraph"]
    return sources


def imported(source: str, modules: Mapping[str, str]) -> Iterator[str]:
    """Which of the modules a source imports, or imports names from."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found = submodule if submodule in modules else node.module
                if found in modules:
                    yield found


def import_graph(sources: Mapping[str, str]) -> networkx.DiGraph:
    """An edge from each module to each that it imports."""
    edges = ((name, other) for name, text in sources.items() for other in imported(text, sources))
    return networkx.DiGraph(edges)


def circles(sources: Mapping[str, str]) -> list[list[str]]:
    """Modules that need each other, one list for each group of them."""
    groups = networkx.strongly_connected_components(import_graph(sources))
    return sorted(sorted(group) for group in groups if len(group) > 1)


def test_no_files_import_each_other() -> None:
    assert circles(product_sources()) == []


def test_passes_do_not_import_from_each_other() -> None:
    edges = import_graph(product_sources()).edges
    passes = "qgraph.transforms."
    assert [edge for edge in edges if all(name.startswith(passes) for name in edge)] == []


def test_circles_are_found_under_functions_and_for_type_checkers() -> None:
    late = "def f():\n    from p.b import g\n"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.c\n"
    sources = {"p.a": late, "p.b": typed, "p.c": "from p import a\n", "p.d": "import p.a\n"}
    assert circles(sources) == [["p.a", "p.b", "p.c"]]
