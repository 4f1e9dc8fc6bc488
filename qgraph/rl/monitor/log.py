"""Looks and decisions in files: all of them in JSON lines, and in CSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from qgraph.errors import LoadError, OutputError
from qgraph.files import write_whole
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.indicators import Indicators
from qgraph.rl.monitor.strategy import Decision

LINES, TABLE = "monitor.jsonl", "monitor.csv"
SEEN = tuple(part.name for part in fields(Indicators))
COLUMNS = (*SEEN, "compressor", "share", "reason", "failed", "refused", "looked")


@dataclass(frozen=True)
class DecisionRow:
    """One look of the monitor, and its decision.

    failed: compression failed; the decision in force from then on has the failure as its reason.
    refused: a chain that was left for it, and is not taken again. looked: not so where a run
    begins, and nothing has been seen.
    """

    seen: Indicators
    decision: Decision
    failed: bool = False
    refused: Compressor | None = None
    looked: bool = True


class Log:
    """The log of one run in `folder`: a row for each look and for each failure of another kind.

    until: a run that goes on keeps the rows up to that version, and has them in `kept`. Raises
    OutputError.
    """

    def __init__(self, folder: Path, until: int | None = None) -> None:
        self.kept: list[DecisionRow] = []
        if until is not None and (folder / LINES).exists():
            self.kept = [row for row in read_log(folder / LINES) if row.seen.version <= until]
        write_whole(folder / LINES, b"")
        try:
            self._lines = (folder / LINES).open("a", encoding="utf-8")
            self._table = (folder / TABLE).open("w", newline="", encoding="utf-8")
        except OSError as error:
            raise _unwritable(folder, error) from None
        self._folder = folder
        self._writer = csv.DictWriter(self._table, COLUMNS)
        self._writer.writeheader()
        for row in self.kept:
            self.add(row)

    def add(self, row: DecisionRow) -> None:
        made = row.decision
        said = {"compressor": str(made.compressor), "share": made.share, "reason": made.reason}
        refused = None if row.refused is None else str(row.refused)
        more = {"failed": row.failed, "refused": refused, "looked": row.looked}
        found: dict[str, Any] = {**asdict(row.seen), **said, **more}
        plain = {k: None if v != v else v for k, v in found.items()}  # JSON has no NaN
        try:
            self._lines.write(json.dumps(plain) + "\n")
            self._writer.writerow(found)
            self._lines.flush()
            self._table.flush()
        except OSError as error:
            raise _unwritable(self._folder, error) from None

    def close(self) -> None:
        self._lines.close()
        self._table.close()


def read_log(path: Path) -> list[DecisionRow]:
    """The rows that a log wrote. A last line that a kill has cut is left out. Raises LoadError."""
    try:
        lines = path.read_text("utf-8").splitlines(keepends=True)
        return [_read(json.loads(line)) for line in lines if line.endswith("\n")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(f"cannot be read: {error}", node=str(path)) from None


def changes(rows: Sequence[DecisionRow]) -> list[DecisionRow]:
    """Those whose chain is another one than that before."""
    found, last = [], None
    for row in rows:
        now = str(row.decision.compressor)
        if now != last:
            found.append(row)
        last = now
    return found


def _read(found: dict[str, Any]) -> DecisionRow:
    read = {name: found.get(name) for name in SEEN}
    numbers: dict[str, Any] = {n: math.nan if value is None else value for n, value in read.items()}
    chain = Compressor.parse(found["compressor"])
    decision = Decision(chain, found["share"], found["reason"])
    left = found.get("refused")
    refused = None if left is None else Compressor.parse(left)
    looked = found.get("looked", True)
    return DecisionRow(Indicators(**numbers), decision, found["failed"], refused, looked)


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot be written: {error.strerror or error}", node=str(path))
