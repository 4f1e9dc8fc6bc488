"""Write the tables in docs/ that are made from declarations.

Usage: `python -m tests.helpers.doc_tables`
"""

from pathlib import Path

from qgraph.quant.key_tables import with_tables

DOCS = Path(__file__).parents[2] / "docs"


def main() -> None:
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        if with_tables(text) != text:
            page.write_text(with_tables(text))
            print(f"{page.name} written anew")


if __name__ == "__main__":
    main()
