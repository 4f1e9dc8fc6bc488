"""A table of measurements: for people, for machines, for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qgraph.cli.console import console
from qgraph.cli.console import table as rich_table


@dataclass
class Table:
    """`columns` maps a heading to how its values are written (`.2%`, `.3g`; empty: as they are)."""

    title: str
    columns: Mapping[str, str]
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *values: Any) -> None:
        self.rows.append(dict(zip(self.columns, values, strict=True)))

    def cells(self, row: Mapping[str, Any]) -> list[str]:
        return [_written(row[heading], how) for heading, how in self.columns.items()]

    def rich(self) -> Any:
        first, *others = self.columns
        made = rich_table(f"\n{self.title}", first, *(f">{heading}" for heading in others))
        for row in self.rows:
            made.add_row(*self.cells(row))
        return made

    def show(self, markdown: bool = False) -> None:
        """Print it, with its notes."""
        if markdown:
            print(self.markdown() + "\n")
            return
        console().print(self.rich())
        for note in self.notes:
            console().print(f"  {note}", style="dim")

    def markdown(self) -> str:
        lines = [_line(list(self.columns)), _line(["---"] * len(self.columns))]
        lines += [_line(self.cells(row)) for row in self.rows]
        return "\n".join([f"**{self.title}**", "", *lines, "", *(f"- {n}" for n in self.notes)])

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "rows": self.rows, "notes": self.notes}


def _written(value: Any, how: str) -> str:
    return "-" if value is None else format(value, how)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
