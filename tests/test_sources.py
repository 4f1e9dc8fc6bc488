"""Shape of the sources: lengths of files, names of types that stand once, enumerations."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.helpers.sources import ROOT, needs_sources
from tests.test_class_names import product_files, relative

pytestmark = needs_sources

LONGEST = 400  # lines
FOLDERS = ("qgraph", "transforms", "cli", "fused_ops", "tests", "benchmarks", "examples")
SUFFIXES = {".py", ".cpp", ".h", ".cu"}
# Types of libraries that take such words themselves.
ORDERS = {"C", "F"}  # of the axes of an array in memory, as numpy names them
FOREIGN_LITERALS = {"qgraph/archives.py": ORDERS, "qgraph/quant/samples/spill.py": ORDERS}


def lengths(root: Path) -> dict[str, int]:
    files = (f for folder in FOLDERS for f in (root / folder).rglob("*") if f.suffix in SUFFIXES)
    return {str(f.relative_to(root)): len(f.read_text("utf-8").splitlines()) for f in files}


def test_no_file_is_too_long() -> None:
    long = {file: lines for file, lines in lengths(ROOT).items() if lines > LONGEST}
    assert not long, "split these files by what they do"


def repeated_aliases(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Names of types, like `Pair = tuple[int, int]`, that several files define alike."""
    places = defaultdict(list)
    for file, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
                (name, *_), text = map(ast.unparse, node.targets), ast.unparse(node)
                if name[:1].isupper() and not name.isupper():
                    places[text].append(file)
    return {text: found for text, found in sorted(places.items()) if len(found) > 1}


def test_names_of_types_are_defined_once() -> None:
    found = repeated_aliases(relative(product_files()))
    known = {
        "Float64 = npt.NDArray[np.float64]",  # kernels are below the rules for weights
        "Shape = tuple[int, ...]",  # of actors: one sample, a network, an image
    }
    assert found.keys() == known, found


def test_repeated_names_of_types_are_found() -> None:
    a, b = "Pair = tuple[int, int]\nLIMITS = {}[0]\n", "Pair = tuple[int, int]\nOther = list[int]\n"
    assert repeated_aliases({"a.py": a, "b.py": b}) == {"Pair = tuple[int, int]": ["a.py", "b.py"]}


def literals(source: str) -> set[str]:
    """The words of `Literal[...]` in a source."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
            words = (n.value for n in ast.walk(node.slice) if isinstance(n, ast.Constant))
            found |= {word for word in words if isinstance(word, str)}
    return found


def test_texts_with_a_meaning_are_enumerations() -> None:
    found = {file: words for file, s in relative(product_files()).items() if (words := literals(s))}
    assert found == FOREIGN_LITERALS, "use a StrEnum"


@pytest.mark.parametrize(
    ("source", "words"),
    [("mode: Literal['a', 'b']", {"a", "b"}), ("seen: typing.Literal[True] | int", set())],
)
def test_literals_are_found(source: str, words: set[str]) -> None:
    assert literals(source) == words


def test_switches_over_enumerations_have_no_catch_all() -> None:
    """So that the compiler names a case that is missing; switches over numbers may have one."""
    sources = (f for f in (ROOT / "fused_ops").rglob("*") if f.suffix in SUFFIXES)
    found = {
        str(file.relative_to(ROOT))
        for file in sources
        if "tests" not in file.parts and re.search(r"\bdefault:", file.read_text("utf-8"))
    }
    assert found == {
        "fused_ops/actor/vnni_body.h",  # rows and vectors of a tile
        "fused_ops/engine/kernels/finish_body.h",  # bytes of a number
    }
