"""Tests that need optional packages: where they run, and that they cannot be skipped unseen."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MISSING = {
    "in a test": """
import pytest

def test_one():
    pytest.importorskip("no_such_package", reason="pip install it")

def test_other():
    assert pytest.importorskip("json").dumps(1) == "1"
""",
    "in a module": """
import pytest

pytest.importorskip("no_such_package", reason="pip install it")

def test_one():
    pass
""",
}


@pytest.mark.parametrize("where", MISSING)
@pytest.mark.parametrize("required", [True, False])
def test_a_missing_package_fails_where_all_are_required(tmp_path, where, required):
    (tmp_path / "test_it.py").write_text(MISSING[where])
    options = ["-p", "tests.helpers.extras", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(["--require-extras"] * required), tmp_path],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ("No module named 'no_such_package'" in done.stdout) == required, done.stdout
    failed = " error" in done.stdout or " failed" in done.stdout
    assert failed == required and ("1 skipped" in done.stdout) != required, done.stdout
