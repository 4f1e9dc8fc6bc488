"""The directory of a run: its options, its progress, and its checkpoint."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from qgraph.archives import read_json, reading
from qgraph.errors import LoadError, OutputError, UsageError
from qgraph.files import unwritable, write_whole
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.agents.registry import config_from_json

OPTIONS, CHECKPOINT = "options.json", "checkpoint.npz"
PROGRESS, EPISODES, BREAKDOWN = "progress.csv", "episodes.csv", "actors.csv"
POLICY, BOARD, ENERGY, LOCK = "policy.pb", "tensorboard", "energy.json", "lock"
STATIC_POLICY = "policy.qpol"  # of a run that trains in few bits


class RunDirectory:
    """The directory, locked by one run at a time.

    Raises OutputError if another run uses it, or if it contains a run that is not resumed;
    UsageError if there is no run to resume.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / LOCK, os.O_CREAT | os.O_RDWR, 0o666)
        except OSError as error:
            raise unwritable(path, error) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise OutputError(
                "another run uses this directory", node=str(path), hint="choose another directory"
            ) from None
        except OSError:
            pass  # a file system without locks, as for other outputs (`drafts.py`)
        exists = (path / CHECKPOINT).exists()  # a run without one can be replaced
        if exists != resume:
            self.close()
            if exists:
                raise OutputError(
                    "contains a run", node=str(path), hint="resume it, or choose another directory"
                )
            raise UsageError(
                "the run to resume does not exist", hint=f"`{path}` has no {CHECKPOINT}"
            )

    def config(self) -> RunConfig:
        """The config that the run began with. Raises LoadError."""
        with reading(self.path / OPTIONS):
            options = read_json(self.path / OPTIONS)
            config = config_from_json(options)
            _check_same_settings(config, options)
            return config

    def begin(self, config: RunConfig) -> None:
        """Write the config. Raises OutputError."""
        content = json.dumps(config.as_json(), indent=1) + "\n"
        write_whole(self.path / OPTIONS, content.encode())

    def close(self) -> None:
        os.close(self._lock)


class Rows:
    """A CSV file that grows by rows; a row is in the file when `add` returns.

    A resumed run removes the rows that it will write again, whose first column exceeds `until`.
    """

    def __init__(self, path: Path, columns: Sequence[str], until: float | None = None) -> None:
        self.path, self.columns = path, tuple(columns)
        kept: list[Mapping[str, object]] = []
        if until is not None and path.exists():
            kept = self._read(until)
        header = {name: name for name in self.columns}
        write_whole(path, self._lines([header, *kept]))
        # Without a buffer, which would be written again at the end if the disk was full.
        self.stream = path.open("ab", buffering=0)

    def _read(self, until: float) -> list[Mapping[str, object]]:
        """The rows up to `until`. Raises LoadError for a file that is not such a table."""
        try:
            lines = self.path.read_text("utf-8").splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n")]  # the last may be incomplete
            rows = [{name: row[name] for name in self.columns} for row in csv.DictReader(whole)]
            return [row for row in rows if float(row[self.columns[0]]) <= until]
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            why = f"is not a table of {', '.join(self.columns)}: {error}"
            raise LoadError(why, node=str(self.path)) from None

    def add(self, row: Mapping[str, object]) -> None:
        try:
            self.stream.write(self._lines([row]))
        except OSError as error:
            raise unwritable(self.path, error) from None

    def close(self) -> None:
        self.stream.close()

    def _lines(self, rows: Iterable[Mapping[str, object]]) -> bytes:
        text = io.StringIO(newline="")
        csv.DictWriter(text, self.columns).writerows(rows)
        return text.getvalue().encode()


def _check_same_settings(config: RunConfig, options: Mapping[str, object]) -> None:
    """Raise LoadError for a setting that the file lacks and new runs of the task set.

    An earlier version wrote such a file, and the default could change what the run learns.
    """
    usual = config.task_settings(config.environment)
    for name, field in config.fields().items():
        known = name in options or field.setting.former_name in options
        if not known and usual.get(name, field.default) != field.default:
            raise LoadError(
                f"the run began before `{name}` was a setting, and the environment may have "
                "changed since then",
                hint=f'begin a new run, or add "{name}": {json.dumps(usual[name])} to the file to '
                f"continue with the setting of new runs of `{config.environment}`",
            )
