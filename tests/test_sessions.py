"""Commands on pages of the documentation run, and print what the pages show."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in TEXTS if "```console\n" in page.read_text()]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sessions", ROOT / "docs/builder/sessions.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["sessions"] = module
    spec.loader.exec_module(module)
    return module


sessions = _load()


def masked(text: str) -> list[str]:
    """Lines without numbers, names of instruction sets, widths of columns, the best of steps."""
    text = re.sub(r"\b(avx\w*|amx|plain)(?=, \d thread)", "LEVEL", text)
    text = re.sub(r"\b(?=[a-f]*\d)[\da-f]{3,}\b", "#", text)  # of base 16
    text = re.sub(r"[-+]?\d[\d.,^-]*", "#", text)
    text = re.sub(r"(?m)^( +# .*) best$", r"\1", text)  # sums of threads decide between near ones
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_print_what_the_page_shows(page: Path) -> None:
    pytest.importorskip("sklearn")
    text = page.read_text()
    if absent := sessions.missing(text):
        pytest.skip(f"missing: {', '.join(absent)}")
    assert masked(sessions.run_page(text)) == masked(text)


def test_a_page_is_run() -> None:
    page = """
<!-- runs: touch hidden -->

```text title="a.txt"
1
2
```

<!-- shows: first 1, last 1 -->

```console
$ cat a.txt &&
> ls
old output
$ seq 9
```
"""
    shown = sessions.run_page(page)
    console = shown.split("```console\n")[1]
    assert console == "$ cat a.txt &&\n> ls\n1\n...\nhidden\n$ seq 9\n1\n...\n9\n```\n"
    assert sessions.run_page(shown) == shown


def test_a_command_that_fails_ends_the_run() -> None:
    with pytest.raises(sessions.SessionError, match="no-such"):
        sessions.run_page("```console\n$ cat no-such\n```\n")


def test_a_page_without_its_programs_and_modules_stays_as_it_is(tmp_path, capsys) -> None:
    page = tmp_path / "page.md"
    text = (
        "<!-- needs: sh no-such-program -->\n<!-- needs modules: json no_such_module -->\n\n"
        "```console\n$ echo new\nold\n```\n"
    )
    page.write_text(text)
    sessions.main([str(page)])
    assert page.read_text() == text
    assert (
        capsys.readouterr().out
        == f"{page}: left as it is, missing: no-such-program, no_such_module\n"
    )
