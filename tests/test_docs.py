"""All that the documentation names exists, and every page is in the navigation of the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import qgraph
from tests.helpers.sources import needs_sources

pytestmark = needs_sources

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
PAGES += sorted((ROOT / "qgraph/rl/agents").glob("*/README.md"))
# Pages that only the site has: `docs/builder/command_line.py` makes them.
GENERATED = {
    ROOT / "docs/reference/command_line.md",
    ROOT / "docs/reference/rl_command_line.md",
}
CODE = ("qgraph", "transforms", "cli", "fused_ops", "benchmarks", "tests")
TABLES = (
    "frontends", "frontends/keras", "frontends/tf", "rewrite", "quant", "quant/reconstruction",
    "quant/samples", "quant/without_data", "static", "stored", "train", "rl/agents",
)  # fmt: skip


def links(page: Path) -> set[Path]:
    """Files that `page` links to."""
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    return {(page.parent / t).resolve() for t in targets if "://" not in t}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    assert not [target for target in links(page) - GENERATED if not target.exists()]


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    named = set(re.findall(r"[\w/]+\.md", navigation))
    pages = {p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")}
    pages |= {f"notebooks/{p.stem}.md" for p in (ROOT / "docs/notebooks").glob("*.ipynb")}
    assert not pages - named


def test_the_python_reference_has_every_public_name() -> None:
    text = (ROOT / "docs/reference/python.md").read_text()
    named = set(re.findall(r"^::: qgraph\.(\w+)$", text, re.MULTILINE))
    assert named == set(qgraph.__all__) - {"__version__"}


def test_files_in_the_architecture_exist() -> None:
    files = [p for package in CODE for p in (ROOT / package).rglob("*")]
    paths = [str(p.relative_to(ROOT)) for p in files if p.is_file()]
    named = re.findall(r"`([\w/]+\.(?:py|cpp|h))`", (ROOT / "docs" / "architecture.md").read_text())
    assert not [name for name in named if not any(f"/{p}".endswith(f"/{name}") for p in paths)]


@pytest.mark.parametrize("package", TABLES)
def test_modules_of_packages_with_a_table_are_in_the_architecture(package: str) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    modules = (p.name for p in (ROOT / "qgraph" / package).glob("*.py") if p.stem != "__init__")
    assert not [name for name in modules if not re.search(rf"[`/]{re.escape(name)}`", text)]
