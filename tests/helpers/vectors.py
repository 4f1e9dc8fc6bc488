"""The folder of independent test vectors, if it exists."""

from __future__ import annotations

from pathlib import Path

import pytest


def vector_file(name: str) -> Path:
    """A file of vectors beside the checkout. Skips the test if it does not exist."""
    path = Path(__file__).parents[3] / "shared" / "vectors" / name
    if not path.exists():
        pytest.skip(f"the vectors are not here: {name}")
    return path
