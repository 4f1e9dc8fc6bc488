"""A mark for tests that read the source files of qgraph, which an installed wheel does not have."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
needs_sources = pytest.mark.skipif(
    not (ROOT / "qgraph" / "__init__.py").is_file(),
    reason="needs the sources of qgraph beside tests/, which a test of a wheel leaves out",
)
