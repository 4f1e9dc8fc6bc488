"""Long commands of the Makefile show how they go, and their output if they fail."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.step import shown

STEP = Path(__file__).parent / "helpers" / "step.py"


def step(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, STEP, "waiting", sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_successful_command_prints_its_state_only() -> None:
    done = step("print('much'); print('more')")
    assert done.returncode == 0
    first, last = done.stdout.splitlines()
    assert first.startswith("[0:0") and first.endswith("] waiting")
    assert last.startswith("[0:0") and last.endswith("] waiting: done")
    assert done.stderr == ""


def test_a_command_that_fails_shows_its_output() -> None:
    done = step("import sys; print('out'); print('cause', file=sys.stderr); sys.exit(3)")
    assert done.returncode == 3
    assert done.stdout.endswith("] waiting: failed\n")
    assert "out\n" in done.stderr and "cause\n" in done.stderr


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("  Downloading rich-14.whl (243 kB)\n", "downloading rich-14.whl (243 kB)"),
        ("Collecting numpy>=1.24 (from qgraph)\n", "looking up numpy"),
        ("Installing collected packages: a, b\n", "unpacking the packages"),
        ("  Preparing metadata (pyproject.toml): started\n", None),
    ],
)
def test_lines_of_pip(line: str, text: str | None) -> None:
    assert shown(line) == text
