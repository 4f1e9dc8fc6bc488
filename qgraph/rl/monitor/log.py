"""The log of measurements and decisions, as JSON lines and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from qgraph.errors import LoadError
from qgraph.files import unwritable, write_whole
from qgraph.records import from_json
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.indicators import Indicators
from qgraph.rl.monitor.strategy import Decision

LINES, TABLE = "monitor.jsonl", "monitor.csv"
INDICATORS = tuple(part.name for part in fields(Indicators))
COLUMNS = (*INDICATORS, "compressor", "share", "reason", "failed", "refused", "looked")


@dataclass(frozen=True)
class DecisionRow:
    """One measurement of the monitor, and its decision.

    failed: compression failed, which is the reason of the decision. refused: the chain that failed
    and is not used again. looked: False for the first decision of a run, which is made before any
    measurement.
    """

    indicators: Indicators
    decision: Decision
    failed: bool = False
    refused: Compressor | None = None
    looked: bool = True


class Log:
    """The log of one run in `folder`: a row for each measurement and for each new failure.

    until: a resumed run keeps the rows up to that version, in `kept`. The files are rewritten
    completely or not at all, and are open for one row at a time. Raises OutputError.
    """

    def __init__(self, folder: Path, until: int | None = None) -> None:
        self.kept: list[DecisionRow] = []
        if until is not None and (folder / LINES).exists():
            self.kept = [row for row in read_log(folder / LINES) if row.indicators.version <= until]
        self._folder = folder
        columns = [_columns(row) for row in self.kept]
        write_whole(folder / LINES, "".join(map(_json_line, columns)).encode())
        write_whole(
            folder / TABLE, _csv_lines([{name: name for name in COLUMNS}, *columns]).encode()
        )

    def add(self, row: DecisionRow) -> None:
        columns = _columns(row)
        for name, text in ((LINES, _json_line(columns)), (TABLE, _csv_lines([columns]))):
            try:
                with (self._folder / name).open("ab") as stream:
                    stream.write(text.encode())
            except OSError as error:
                raise unwritable(self._folder / name, error) from None


def read_log(path: Path) -> list[DecisionRow]:
    """The rows of a log, without a last line that is incomplete. Raises LoadError."""
    try:
        lines = path.read_text("utf-8").splitlines(keepends=True)
        return [_read(line) for line in lines if line.endswith("\n")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(f"cannot be read: {error}", node=str(path)) from None


def changes(rows: Sequence[DecisionRow]) -> list[DecisionRow]:
    """The rows whose chain differs from that of the row before."""
    changed, last = list[DecisionRow](), ""
    for i, row in enumerate(rows):
        now = str(row.decision.compressor)
        if now != last or i == 0:
            changed.append(row)
        last = now
    return changed


@dataclass(frozen=True)
class _DecisionColumns:
    """The columns of a row beside its indicators."""

    compressor: str
    share: float
    reason: str
    failed: bool
    refused: str | None = None
    looked: bool = True


def _columns(row: DecisionRow) -> Mapping[str, object]:
    return {**asdict(row.indicators), **asdict(_decided(row))}


def _json_line(columns: Mapping[str, object]) -> str:
    plain = {k: None if v != v else v for k, v in columns.items()}  # JSON has no NaN
    return json.dumps(plain) + "\n"


def _csv_lines(rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO(newline="")
    csv.DictWriter(text, COLUMNS).writerows(rows)
    return text.getvalue()


def _decided(row: DecisionRow) -> _DecisionColumns:
    decision, refused = row.decision, None if row.refused is None else str(row.refused)
    chain = str(decision.compressor)
    return _DecisionColumns(chain, decision.share, decision.reason, row.failed, refused, row.looked)


def _read(line: str) -> DecisionRow:
    columns = from_json(dict[str, object], json.loads(line))
    own = from_json(_DecisionColumns, columns)
    numbers = from_json(dict[str, float | None], {name: columns.get(name) for name in INDICATORS})
    known = {name: math.nan if value is None else value for name, value in numbers.items()}
    indicators = Indicators(int(known.pop("version")), **known)
    decision = Decision(Compressor.parse(own.compressor), own.share, own.reason)
    refused = None if own.refused is None else Compressor.parse(own.refused)
    return DecisionRow(indicators, decision, own.failed, refused, own.looked)
