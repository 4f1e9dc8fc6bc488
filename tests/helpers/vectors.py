"""Folder of the independent vectors, if they exist."""

from __future__ import annotations

from pathlib import Path

import pytest


def vector_file(name: str) -> Path:
    """A file of vectors beside the checkout; the test skips where there is none."""
    path = Path(__file__).parents[3] / "shared" / "vectors" / name
    if not path.exists():
        pytest.skip(f"the vectors are not here: {name}")
    return path
