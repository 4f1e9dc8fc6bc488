"""The command in a result measures it again; the file changes only if its page can be made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import measure
from benchmarks.result import RESULTS, read
from benchmarks.topics.site import TOPICS

NAME = "transport"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(RESULTS / f"{NAME}.json", tmp_path)
    return tmp_path


def test_the_command_of_the_file_writes_the_new_one(folder: Path) -> None:
    said: list[str] = []

    def run(command: Sequence[str]) -> int:
        said[:] = command
        data = json.loads((folder / f"{NAME}.json").read_text())
        data["commit"] = "new"
        Path(command[-1]).write_text(json.dumps(data))
        return 0

    assert measure.measure(NAME, folder, run) == ""
    assert said[:-1] == [*read(NAME).command.split(), "--json"]
    assert read(NAME, folder).commit == "new"


def test_a_command_that_fails_changes_nothing(folder: Path) -> None:
    before = (folder / f"{NAME}.json").read_text()
    assert "exit code 3" in measure.measure(NAME, folder, lambda command: 3)
    assert (folder / f"{NAME}.json").read_text() == before


def test_data_without_a_row_of_the_page_changes_nothing(folder: Path) -> None:
    before = (folder / f"{NAME}.json").read_text()

    def run(command: Sequence[str]) -> int:
        data = json.loads(before)
        data["tables"][0]["rows"].pop()
        data["tables"][0]["rows"] = [
            row for row in data["tables"][0]["rows"] if row["carrier"] != "ZeroMQ"
        ]
        Path(command[-1]).write_text(json.dumps(data))
        return 0

    assert "page cannot be made" in measure.measure(NAME, folder, run)
    assert (folder / f"{NAME}.json").read_text() == before


def test_all_timed_results_have_a_page_and_are_offered_until_measured() -> None:
    assert set(measure.TIMED) <= {topic.name for topic in TOPICS}
    assert set(measure.transcribed()) <= set(measure.TIMED)
