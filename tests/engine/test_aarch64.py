"""The levels for 64-bit Arm, cross-compiled and emulated."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.sources import needs_sources

pytestmark = needs_sources

ROOT = Path(__file__).parents[2]
TOOLS = ("make", "cmake", "aarch64-linux-gnu-g++", "qemu-aarch64")


@pytest.mark.slow
def test_every_level_gives_the_same_codes_on_emulated_processors() -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: see `make test-aarch64`")
    done = subprocess.run(
        ["make", "test-aarch64"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Each program ends with this line, on a processor without dot products and on one with them.
    assert done.stdout.count("actor: all tests passed") == 2
    assert done.stdout.count("engine: all tests passed") == 2
