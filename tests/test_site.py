"""The documentation site builds without a warning, and all its links lead somewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_the_check_of_links_finds_faults(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h1 id="there">Other</h1>')
    page = '<a href="other.html#there">good</a> <a href="other.html#gone">bad</a>'
    page += '<a href="none.html">bad</a> <script src="https://example.org/a.js"></script>'
    (tmp_path / "index.html").write_text(page)
    done = check(tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "index.html: fetches https://example.org/a.js; the site must work without the internet",
        "index.html: other.html#gone: no such anchor",
        "index.html: none.html: no such file",
    ]
