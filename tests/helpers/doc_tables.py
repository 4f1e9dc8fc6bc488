"""Tables in the documentation that are made from declarations; `make golden` writes them."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.topics import site
from qgraph.quant import key_tables
from tests.helpers import (
    actor_tables,
    agent_tables,
    import_tables,
    levels,
    program_tables,
    project,
    row_tables,
)

ROOT = Path(__file__).parents[2]
TABLES = {
    **key_tables.TABLES,
    **actor_tables.TABLES,
    **agent_tables.TABLES,
    **program_tables.TABLES,
    **import_tables.TABLES,
    **project.TABLES,
    **row_tables.TABLES,
    **levels.TABLES,
    **site.TABLES,
}


def pages() -> Iterator[Path]:
    """Every page that may contain such tables."""
    yield from sorted((ROOT / "docs").glob("*.md"))
    yield from sorted((ROOT / "docs/results").glob("*.md"))
    yield from sorted((ROOT / "qgraph/rl/agents").glob("*/README.md"))
