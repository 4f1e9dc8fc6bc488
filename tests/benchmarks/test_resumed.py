"""Rows of a long table: a run that was interrupted continues where it ended."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks.real import resumed as module
from benchmarks.real.resumed import Part, resumed


@pytest.fixture(autouse=True)
def _cached(tmp_path, monkeypatch):
    monkeypatch.setenv("QGRAPH_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "commit", lambda *more: "abc")


class Networks:
    """Parts that record when they are measured; one of them may fail."""

    def __init__(self, failing: str = "") -> None:
        self.measured: list[str] = []
        self.failing = failing

    def rows(self) -> list[Part]:
        parts = {name: partial(self._measure, name) for name in ("one", "two")}
        return [*resumed("table", parts)]

    def _measure(self, name: str) -> Part:
        if name == self.failing:
            raise KeyboardInterrupt
        self.measured.append(name)
        return Part([[name, 1.5, None]], f"images of {name}")


def test_a_run_continues_where_it_was_interrupted():
    with pytest.raises(KeyboardInterrupt):
        Networks(failing="two").rows()
    again = Networks()
    found = again.rows()
    assert again.measured == ["two"]
    assert found == Networks().rows() == [
        Part([["one", 1.5, None]], "images of one"), Part([["two", 1.5, None]], "images of two"),
    ]  # fmt: skip


@pytest.mark.parametrize("commits", [("def", "abc"), ("abc-dirty", "abc-dirty")])
def test_rows_of_another_commit_or_of_changed_files_are_measured_again(commits, monkeypatch):
    for commit in commits:
        monkeypatch.setattr(module, "commit", lambda *more, commit=commit: commit)
        run = Networks()
        run.rows()
        assert run.measured == ["one", "two"]
