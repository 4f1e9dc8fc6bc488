"""Write the tables in the documentation that are made from declarations.

Usage: `python -m tests.helpers.doc_tables`
"""

from collections.abc import Iterator
from pathlib import Path

from qgraph.quant import key_tables
from tests.helpers import agent_tables

ROOT = Path(__file__).parents[2]
TABLES = {**key_tables.TABLES, **agent_tables.TABLES}


def pages() -> Iterator[Path]:
    """Every page that may have such tables."""
    yield from sorted((ROOT / "docs").glob("*.md"))
    yield from sorted((ROOT / "qgraph/rl/agents").glob("*/README.md"))


def main() -> None:
    for page in pages():
        text = page.read_text()
        new = key_tables.with_tables(text, TABLES)
        if new != text:
            page.write_text(new)
            print(f"{page.relative_to(ROOT)} written anew")


if __name__ == "__main__":
    main()
