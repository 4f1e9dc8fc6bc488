"""The directory of a run: what it was told, how it went, and where it can go on."""

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
from qgraph.files import write_whole
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.agents.registry import config_from_json

OPTIONS, CHECKPOINT = "options.json", "checkpoint.npz"
PROGRESS, EPISODES, BREAKDOWN = "progress.csv", "episodes.csv", "actors.csv"
POLICY, BOARD, ENERGY, LOCK = "policy.pb", "tensorboard", "energy.json", "lock"


class RunDirectory:
    """Held by one run at a time.

    Raises OutputError where another run is at work in it, or where one was and it is not resumed;
    UsageError where there is nothing to resume.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / LOCK, os.O_CREAT | os.O_RDWR, 0o666)
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise OutputError(
                "another run is at work here", node=str(path), hint="choose another directory"
            ) from None
        begun = (path / CHECKPOINT).exists()  # without one there is nothing to lose
        if begun != resume:
            self.close()
            if begun:
                raise OutputError(
                    "holds a run", node=str(path), hint="resume it, or choose another directory"
                )
            raise UsageError("there is no run to resume", hint=f"`{path}` has no {CHECKPOINT}")

    def config(self) -> RunConfig:
        """The config that the run began with. Raises LoadError."""
        with reading(self.path / OPTIONS):
            found = read_json(self.path / OPTIONS)
            config = config_from_json(found)
            _check_same_settings(config, found)
            return config

    def begin(self, config: RunConfig) -> None:
        content = json.dumps(config.as_json(), indent=1) + "\n"
        write_whole(self.path / OPTIONS, content.encode())

    def close(self) -> None:
        os.close(self._lock)


class Rows:
    """A CSV file that grows by a row at a time; each row is in the file when `add` returns.

    Rows that a resumed run makes again are taken away: those whose first column is past `until`.
    """

    def __init__(self, path: Path, columns: Sequence[str], until: float | None = None) -> None:
        self.path, self.columns = path, tuple(columns)
        kept: list[Mapping[str, object]] = []
        if until is not None and path.exists():
            kept = self._read(until)
        header = {name: name for name in self.columns}
        write_whole(path, self._lines([header, *kept]))
        # Without a buffer: what a full disk did not take is not tried again at the end.
        self.stream = path.open("ab", buffering=0)

    def _read(self, until: float) -> list[Mapping[str, object]]:
        """Rows up to there. Raises LoadError for a file that is not such a table."""
        try:
            lines = self.path.read_text("utf-8").splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n")]  # a kill may have cut the last
            found = [{name: row[name] for name in self.columns} for row in csv.DictReader(whole)]
            return [row for row in found if float(row[self.columns[0]]) <= until]
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            told = f"is no table of {', '.join(self.columns)}: {error}"
            raise LoadError(told, node=str(self.path)) from None

    def add(self, row: Mapping[str, object]) -> None:
        try:
            self.stream.write(self._lines([row]))
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def close(self) -> None:
        self.stream.close()

    def _lines(self, rows: Iterable[Mapping[str, object]]) -> bytes:
        text = io.StringIO(newline="")
        csv.DictWriter(text, self.columns).writerows(rows)
        return text.getvalue().encode()


def _check_same_settings(config: RunConfig, found: Mapping[str, object]) -> None:
    """Raises LoadError for a setting that the run began without and that new runs would set.

    An earlier version wrote the file then: the default could change what the run learns.
    """
    usual = config.task_settings(config.environment)
    for name, field in config.fields().items():
        known = name in found or field.setting.earlier in found
        if not known and usual.get(name, field.default) != field.default:
            raise LoadError(
                f"the run began before `{name}` was a setting, and the environment may have "
                "changed since",
                hint=f'begin a new run, or add "{name}": {json.dumps(usual[name])} to the file to '
                f"go on with what new runs of `{config.environment}` have",
            )


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot be written: {error.strerror or error}", node=str(path))
