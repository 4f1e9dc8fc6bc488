"""The documentation site builds without a warning, its links lead somewhere, its search finds."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
CHECK = ROOT / "docs/builder/check_links.py"


def check(site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, CHECK, site], capture_output=True, text=True)


@pytest.mark.extra
@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", tmp_path]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    checked = check(tmp_path)
    assert checked.returncode == 0, checked.stdout


def page(body: str, *, head: str = "<title>A</title>", description: str = "a") -> str:
    return f'{head}<meta name="description" content="{description}">{body}'


def test_the_check_of_links_finds_faults(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text(page('<h1 id="there">Other</h1>', description="b"))
    links = '<h1>Links</h1><a href="other.html#there">good</a> <a href="other.html#gone">bad</a>'
    links += '<a href="none.html">bad</a> <script src="https://example.org/a.js"></script>'
    (tmp_path / "index.html").write_text(page(links))
    done = check(tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "index.html: fetches https://example.org/a.js; the site must work without the internet",
        "index.html: other.html#gone: no such anchor",
        "index.html: none.html: no such file",
    ]


def test_the_check_of_pages_finds_faults(tmp_path: Path) -> None:
    pages = {
        "alike.html": page("<h1>One</h1>"),
        "bare.html": '<h1>A</h1><img src="a.png" alt="a drawing">',
        "headings.html": page("<h2>A</h2><h3>B</h3><h2>C</h2><h4>D</h4>", description="c"),
        "names.html": page(
            '<h1>A</h1><p role="dialog"></p><th> </th><th><b>x</b></th>', description="n"
        ),
        "picture.html": page('<h1>A</h1><img src="a.png">'),
        "rows.html": page("<h1>A</h1><p>| <code>x</code> | y |</p>", description="r"),
    }
    (tmp_path / "a.png").touch()
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    done = check(tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "bare.html: no title",
        "bare.html: no description",
        "headings.html: 0 headings of the first level; one is the page's name",
        "headings.html: a heading of level 4 follows one of level 2",
        "names.html: no name for a dialog",
        "names.html: no name for a column of a table",
        "picture.html: no text for the picture a.png",
        "rows.html: a row outside of its table: |",
        "alike.html, picture.html: one description, `a`",
    ]


QUERIES = {
    "--effort": "effort",
    "quantize --mean-bits": "quantize mean-bits",
    '"--effort fast"': '"effort fast"',
    "-effort": "-effort",
    "two--dashes --": "two--dashes --",
}


def test_options_are_searched_for_not_left_out(tmp_path: Path) -> None:
    """A word behind `-` is one that results must not have, in the search of the theme."""
    script = (ROOT / "docs/javascripts/search-options.js").read_text("utf-8")
    assert "  - javascripts/search-options.js\n" in (ROOT / "mkdocs.yml").read_text("utf-8")
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    field = "class HTMLInputElement { get value() { return this.v } set value(v) { this.v = v } }"
    code = f"""{field}
        const only = new HTMLInputElement();
        globalThis.document = {{ querySelector: () => only }};
        {script}
        const read = (typed) => {{ only.value = typed; return only.value; }};
        console.log(JSON.stringify({json.dumps([*QUERIES])}.map(read)));"""
    done = subprocess.run([node, "-e", code], capture_output=True, text=True)
    assert json.loads(done.stdout or "[]") == [*QUERIES.values()], done.stderr


def test_words_of_the_search_end_at_dashes_and_dots() -> None:
    line = re.search(r"separator: '(.*)'", (ROOT / "mkdocs.yml").read_text("utf-8"))
    assert line is not None
    words = [w for w in re.split(line[1], "--mean-bits qgraph.quantize 8.5 input_ranges") if w]
    assert words == ["mean", "bits", "qgraph", "quantize", "8.5", "input", "ranges"]


CELLS = {
    "<td>equalize=biases,method=mse,reconstruct</td>": (
        "<td>equalize=<wbr>biases,<wbr>method=<wbr>mse,<wbr>reconstruct</td>"
    ),
    "<td>94.3% ± 0.7%</td>": "<td>94.3%&nbsp;±&nbsp;0.7%</td>",
    "<td>ddpg_MountainCarContinuous-v0</td>": "<td>ddpg_<wbr>MountainCarContinuous-v0</td>",
    "<td>22,250 ± 2,448</td>": "<td>22,250&nbsp;±&nbsp;2,448</td>",
    "<td><code>method=kl_j\\|max</code></td>": "<td><code>method=kl_j|max</code></td>",
    '<td><a href="a,b=c/very/long/address.html">x</a></td>': (
        '<td><a href="a,b=c/very/long/address.html">x</a></td>'
    ),
}


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("mkdocs")
    pytest.importorskip("nbconvert")
    monkeypatch.syspath_prepend(ROOT / "docs/builder")
    return importlib.import_module("hooks")


def test_cells_of_tables_break_after_commas(hooks: ModuleType) -> None:
    made = {cell: hooks.CELL.sub(hooks._breaking, cell) for cell in CELLS}
    assert made == CELLS


LINKS = {
    "in [kernels.md](kernels.md#tests)": "in [Native kernels](kernels.md#tests)",
    "see [the kernels](kernels.md)": "see [the kernels](kernels.md)",
    "[gone.md](gone.md)": "[gone.md](gone.md)",
}


def test_links_that_name_a_file_show_the_title_of_its_page(hooks: ModuleType) -> None:
    place = SimpleNamespace(file=SimpleNamespace(src_uri="engine.md"), meta={})
    config = SimpleNamespace(repo_url=None)
    made = {text: hooks.on_page_markdown(text, place, config, None) for text in LINKS}
    assert made == LINKS


def test_the_palette_follows_the_system_until_it_is_switched() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    media = re.findall(r'- media: "\((.*)\)"', text)
    assert media == [
        "prefers-color-scheme",
        "prefers-color-scheme: light",
        "prefers-color-scheme: dark",
    ]
