"""The distribution has one name and one version, and no text installs another project."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from qgraph import distribution
from tests.helpers.project import PURPOSES, names, project

ROOT = Path(__file__).parents[1]
FOLDERS = (".github", "benchmarks", "cli", "docs", "examples", "qgraph", "tests", "transforms")
SUFFIXES = {".py", ".md", ".ipynb", ".toml", ".yml", ".j2"}
ANOTHER_PROJECT = re.compile(r"pip3? install[^\n]*[\s'\"]qgraph(?![\w/-]|\.\w)|['\"`\s]qgraph\[")


def texts() -> Iterator[Path]:
    """Files that could tell a reader what to install."""
    yield from (p for p in ROOT.iterdir() if p.suffix in SUFFIXES or p.name == "Makefile")
    for folder in FOLDERS:
        yield from (p for p in (ROOT / folder).rglob("*") if p.suffix in SUFFIXES)


@pytest.mark.parametrize("text", ["pip install qgraph", "pip install 'qgraph[rl]'", "`qgraph[rl]`"])
def test_the_search_finds_another_project(text: str) -> None:
    assert ANOTHER_PROJECT.search(f"Needs {text}.")


def test_no_text_installs_another_project() -> None:
    found = [str(p.relative_to(ROOT)) for p in texts() if ANOTHER_PROJECT.search(p.read_text())]
    assert set(found) <= {"tests/test_distribution.py"}


def test_the_name_is_that_of_pyproject() -> None:
    assert project()["name"] == distribution.NAME


def test_the_version_is_stated_once() -> None:
    version = project()["version"]
    released = re.search(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released is None or released[1] == version
    assert not re.search(r"\b[Vv]ersion \d", (ROOT / "README.md").read_text())


def test_a_hint_names_the_package_and_the_extra() -> None:
    assert distribution.install_hint("keras>=3") == "pip install 'keras>=3'"
    hint = distribution.install_hint("ray", extra="ray")
    assert hint == "pip install ray, or pip install 'qgraph-compiler[ray]'"


def hints() -> Iterator[tuple[str, list[str], str | None]]:
    """Each call of `install_hint` with literals: its file, packages and extra."""
    for folder in ("qgraph", "cli", "transforms"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if "install_hint(" not in text and "imported(" not in text:
                continue  # to parse all of them takes seconds
            for node in ast.walk(ast.parse(text)):
                name = getattr(getattr(node, "func", None), "id", None)
                if name in ("install_hint", "imported") and isinstance(node, ast.Call):
                    given = [*node.args, *(keyword.value for keyword in node.keywords)]
                    if all(isinstance(value, ast.Constant) for value in given):
                        words = [value.value for value in given]
                        two = name == "imported" and len(words) == 2
                        extra = words.pop() if two or node.keywords else None
                        plain = [re.split(r"[.<>=]", word)[0].replace("_", "-") for word in words]
                        yield path.name, plain, extra


@pytest.mark.parametrize(("file", "packages", "extra"), list(hints()))
def test_a_hint_installs_what_is_missing(file, packages, extra) -> None:
    if extra is None:
        known = {*names(project()["dependencies"]), "keras"}  # keras comes with TensorFlow
    else:
        known = set(names(project()["optional-dependencies"][extra]))
    assert set(packages) <= known, file


def test_extras_have_a_purpose_each() -> None:
    assert PURPOSES.keys() == project()["optional-dependencies"].keys()


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda p: p.name)
def test_an_example_names_what_it_needs(path: Path) -> None:
    tree = ast.parse(path.read_text())
    needs = re.search(r"^Needs: (.*(?:\n.+)*)", ast.get_docstring(tree) or "", re.MULTILINE)
    assert needs is not None
    beside = {one.stem for one in path.parent.glob("*.py")}
    modules = {"sklearn": "scikit-learn", "qgraph": "qgraph"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            found = (
                [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
            for top in {str(name).partition(".")[0] for name in found} - beside:
                assert modules.get(top, "") in needs[1]
    if "data" in {getattr(node, "module", None) for node in ast.walk(tree)}:
        assert "scikit-learn" in needs[1]
