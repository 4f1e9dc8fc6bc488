"""`Any` is for foreign libraries only: no package has more of it than the number here.

The test counts the tokens of product code outside imports, and follows no links. Numbers may only
go down. Objects of libraries without types have their names in `qgraph/foreign.py`.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.sources import needs_sources

pytestmark = needs_sources

ROOT = Path(__file__).parents[1]
FOREIGN = "qgraph/foreign.py"
MOST = {
    "cli": 4,
    "qgraph/archives.py": 2,
    "qgraph/backends": 1,
    "qgraph/exact": 2,
    "qgraph/foreign.py": 18,
    "qgraph/frontends": 5,
    "qgraph/ir": 7,
    "qgraph/kernels": 1,
    "qgraph/numerics.py": 1,
    "qgraph/ops": 16,
    "qgraph/option_text.py": 3,
    "qgraph/program": 1,
    "qgraph/quant": 1,
    "qgraph/rewrite": 7,
    "qgraph/rl": 5,
}


def sources() -> Iterator[Path]:
    for folder in ("qgraph", "transforms", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = [path, *path.parents][: len(path.relative_to(ROOT).parts)]
            if not any(part.is_symlink() for part in inside):
                yield path


def room_of(path: Path) -> str:
    first, *rest = path.relative_to(ROOT).parts
    return f"{first}/{rest[0]}" if first == "qgraph" else first


def count(text: str) -> int:
    """How often `Any` stands in a source, outside of its imports."""
    imports = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    names = (t for t in tokens if t.type == tokenize.NAME and t.string == "Any")
    return sum(token.start[0] not in imports for token in names)


def test_no_package_has_more_any() -> None:
    found: Counter[str] = Counter()
    for path in sources():
        found[room_of(path)] += count(path.read_text("utf-8"))
    more = {package: n for package, n in found.items() if n > MOST.get(package, 0)}
    assert not more, f"more `Any` than before, {more}: give the values their own type"


def test_no_other_file_has_a_name_for_it() -> None:
    named = re.compile(r"^\w+(: TypeAlias)? = Any\b", re.MULTILINE)
    hidden = [path for path in sources() if named.search(path.read_text("utf-8"))]
    assert [str(path.relative_to(ROOT)) for path in hidden] == [FOREIGN]


def test_what_is_counted() -> None:
    text = "from typing import Any\n\nx: Any = 1  # Any\ny: dict[str, Any] = 'Any'\n"
    assert count(text) == 2
