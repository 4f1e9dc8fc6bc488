"""Long work prints plain lines to standard error where there is no terminal."""

import threading

from qgraph.cli import progress_lines
from qgraph.cli.console import progress_bar
from qgraph.cli.progress_lines import LinesOfSteps


class _Stderr:
    """Keeps what is written, and sets `printed` after each line."""

    def __init__(self) -> None:
        self.text = ""
        self.printed = threading.Event()

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        self.text += text
        if text.endswith("\n"):
            self.printed.set()
        return len(text)

    def flush(self) -> None:
        """Nothing is buffered."""


def test_the_newest_stage_is_printed_until_the_block_ends(monkeypatch) -> None:
    stderr = _Stderr()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(progress_lines, "LINE_SECONDS", 0.01)
    threads = threading.active_count()
    with progress_bar() as progress:
        progress("calibrating", 3, 10)
        stderr.printed.clear()
        assert stderr.printed.wait(10)
        stderr.printed.clear()
        assert stderr.printed.wait(10)
    assert "calibrating 3/10, 0." in stderr.text and stderr.text.endswith(" s\n")
    assert threading.active_count() == threads


def test_short_work_prints_nothing(capsys) -> None:
    with progress_bar() as progress:
        progress("writing", 0, 1)
    assert capsys.readouterr().err == ""


def test_json_prints_no_lines(monkeypatch, capsys) -> None:
    monkeypatch.setattr(progress_lines, "LINE_SECONDS", 0.0)
    with progress_bar(lines=False) as progress:
        progress("writing", 0, 1)
    assert capsys.readouterr().err == ""


def test_steps_are_printed_when_the_last_line_is_old(monkeypatch, capsys) -> None:
    lines = LinesOfSteps()
    lines(1000, 40_000)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress_lines, "LINE_SECONDS", 0.0)
    lines(2000, 40_000)
    assert capsys.readouterr().err == "2,000 of 40,000 steps\n"
