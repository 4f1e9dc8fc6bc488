"""A table of measurements: for the terminal, for JSON and for the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from qgraph.cli.console import console
from qgraph.cli.console import table as rich_table


@dataclass
class Table:
    """Rows by heading, with the format of each column.

    `columns` maps a heading to the format of its values (`.2%`, `.3g`; empty: unchanged). A value
    that is a pair of numbers is a mean and its error.
    """

    title: str
    columns: Mapping[str, str]
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *values: Any) -> None:
        """Append a row with a value for each column."""
        self.rows.append(dict(zip(self.columns, values, strict=True)))

    def cells(self, row: Mapping[str, Any]) -> list[str]:
        """The values of a row as text."""
        return [written(row[heading], how) for heading, how in self.columns.items()]

    def where(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> Table:
        """The rows that have these values, or one of these if a tuple is given."""
        wanted = {**(values or {}), **more}
        allowed = {k: v if isinstance(v, tuple) else (v,) for k, v in wanted.items()}
        rows = [row for row in self.rows if all(row[k] in v for k, v in allowed.items())]
        return Table(self.title, self.columns, rows, self.notes)

    def only(self, *headings: str) -> Table:
        """The table with these columns, in this order, without `heading: ...` notes on others."""
        columns = {heading: self.columns[heading] for heading in headings}
        rows = [{heading: row[heading] for heading in headings} for row in self.rows]
        others = set(self.columns) - set(headings)
        notes = [note for note in self.notes if note.partition(":")[0] not in others]
        return Table(self.title, columns, rows, notes)

    def pivot(self, rows: str, columns: str, values: str) -> Table:
        """A row for each value of `rows`, a column for each value of `columns`."""
        headings = list(dict.fromkeys(str(row[columns]) for row in self.rows))
        made = Table(self.title, {rows: self.columns[rows]}, notes=self.notes)
        made.columns = {**made.columns, **dict.fromkeys(headings, self.columns[values])}
        for name in dict.fromkeys(row[rows] for row in self.rows):
            found = {str(r[columns]): r[values] for r in self.rows if r[rows] == name}
            made.add(name, *(found.get(heading) for heading in headings))
        return made

    def row(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> dict[str, Any]:
        """The row that has these values. Raises ValueError if there is none, or several."""
        (found,) = self.where(values, **more).rows
        return found

    def rich(self) -> Any:
        """The table for a terminal."""
        first, *others = self.columns
        made = rich_table(f"\n{self.title}", first, *(f">{heading}" for heading in others))
        for row in self.rows:
            made.add_row(*self.cells(row))
        return made

    def show(self) -> None:
        """Print the table with its notes."""
        console().print(self.rich())
        for note in self.notes:
            console().print(f"  {note}", style="dim")

    def markdown(self) -> str:
        """The table in Markdown, without its title."""
        lines = [_line(list(self.columns)), _line(["---"] * len(self.columns))]
        return "\n".join([*lines, *(_line(self.cells(row)) for row in self.rows)])


def merged(title: str, heading: str, parts: Iterable[tuple[str, Table]]) -> Table:
    """Join tables that have the same columns; `heading` names the table of each row."""
    made = Table(title, {})
    for name, table in parts:
        made.columns = {heading: "", **table.columns}
        made.rows += [{heading: name, **row} for row in table.rows]
        made.notes += [note for note in table.notes if note not in made.notes]
    return made


def written(value: Any, how: str) -> str:
    """A cell as text. From 1000 on, numbers with three significant digits are whole numbers."""
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        mean, error = value
        return f"{format(mean, how)} ± {format(error, how.lstrip('+'))}"
    if how == ".3g" and abs(value) >= 1000:
        return f"{value:,.0f}"
    return format(value, how)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
