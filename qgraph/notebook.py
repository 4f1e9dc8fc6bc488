"""HTML of values, for notebooks (`_repr_html_`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table_html(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A title in bold and a table below it."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<b>{escape(title)}</b><table><tr>{head}</tr>{body}</table>"


def folded_html(title: str, text: str) -> str:
    """A title that opens to show `text` as it is."""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"
