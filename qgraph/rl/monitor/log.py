"""Looks and decisions in files: all of them in JSON lines, and in CSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from qgraph.errors import LoadError, OutputError
from qgraph.files import write_whole
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.indicators import Indicators
from qgraph.rl.monitor.strategy import Decision, Look

LINES, TABLE = "monitor.jsonl", "monitor.csv"
SEEN = tuple(part.name for part in fields(Indicators))
COLUMNS = (*SEEN, "compressor", "share", "reason")


class Log:
    """Of one run, in `folder`. Each row is what was seen, and what was decided by it.

    until: a run that goes on keeps the rows up to that version. Raises OutputError.
    """

    def __init__(self, folder: Path, until: int | None = None) -> None:
        kept: list[Look] = []
        if until is not None and (folder / LINES).exists():
            kept = [look for look in read_log(folder / LINES) if look.seen.version <= until]
        write_whole(folder / LINES, b"")
        try:
            self._lines = (folder / LINES).open("a", encoding="utf-8")
            self._table = (folder / TABLE).open("w", newline="", encoding="utf-8")
        except OSError as error:
            raise _unwritable(folder, error) from None
        self._folder = folder
        self._writer = csv.DictWriter(self._table, COLUMNS)
        self._writer.writeheader()
        for look in kept:
            self.add(look.seen, look.acted)

    def add(self, seen: Indicators, decision: Decision) -> None:
        said = {"compressor": str(decision.compressor), "share": decision.share}
        row: dict[str, Any] = {**asdict(seen), **said, "reason": decision.reason}
        plain = {k: None if v != v else v for k, v in row.items()}  # JSON has no NaN
        try:
            self._lines.write(json.dumps(plain) + "\n")
            self._writer.writerow(row)
            self._lines.flush()
            self._table.flush()
        except OSError as error:
            raise _unwritable(self._folder, error) from None

    def close(self) -> None:
        self._lines.close()
        self._table.close()


def read_log(path: Path) -> list[Look]:
    """What a `Log` wrote: each look with the decision that was made by it.

    A last line that a kill has cut is left out. Raises LoadError.
    """
    try:
        lines = path.read_text("utf-8").splitlines(keepends=True)
        return [_read(json.loads(line)) for line in lines if line.endswith("\n")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(f"cannot be read: {error}", node=str(path)) from None


def changes(looks: Sequence[Look]) -> list[Look]:
    """Those whose decision is another one than that before."""
    found, last = [], None
    for look in looks:
        now = str(look.acted.compressor)
        if now != last:
            found.append(look)
        last = now
    return found


def _read(row: dict[str, Any]) -> Look:
    numbers: dict[str, Any] = {name: math.nan if row[name] is None else row[name] for name in SEEN}
    chain = Compressor.parse(row["compressor"])
    return Look(Indicators(**numbers), Decision(chain, row["share"], row["reason"]))


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot be written: {error.strerror or error}", node=str(path))
