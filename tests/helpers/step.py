"""Run a long command of the Makefile and show its progress: `step.py LABEL COMMAND ...`.

A terminal shows the elapsed time and what pip does in one line; elsewhere a line appears from time
to time. The output of the command is shown only if it fails. It runs before anything is installed,
so it uses only the standard library.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

SECONDS_BETWEEN_LINES = 15.0
WIDTH = 96
# Lines of pip, and how they are displayed.
SHOWN = (
    (re.compile(r"\s*Downloading (\S+?)(?:\.metadata)? (\(.+\))"), r"downloading \1 \2"),
    (re.compile(r"\s*Using cached (\S+?)(?:\.metadata)? (\(.+\))"), r"reading \1 \2"),
    (re.compile(r"\s*Collecting ([\w.-]+).*"), r"looking up \1"),
    (re.compile(r"\s*Building \w+ for ([\w.-]+).*"), r"building \1 (its C++ takes minutes)"),
    (re.compile(r"Installing collected packages.*"), "unpacking the packages"),
)


def shown(line: str) -> str | None:
    """A line of pip's output in plain words; None for lines that are not shown."""
    for pattern, text in SHOWN:
        match = pattern.match(line)
        if match:
            return match.expand(text)
    return None


class Step:
    """A running command, its output, and its latest action."""

    def __init__(self, label: str, command: Sequence[str]) -> None:
        self.label = label
        self.detail = ""
        self.output: list[str] = []
        self._start = time.monotonic()
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self.output.append(line)
            self.detail = shown(line) or self.detail

    def state(self) -> str:
        """Elapsed time, label and detail, in one line."""
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        text = f"[{minutes}:{seconds:02}] {self.label}"
        return (f"{text}: {self.detail}" if self.detail else text)[:WIDTH]

    def ended(self, seconds: float) -> int | None:
        """The exit status if the command ends within this time, or None."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join()
        return status


def main(label: str, *command: str) -> int:
    step = Step(label, command)
    terminal = sys.stdout.isatty()
    between = 0.5 if terminal else SECONDS_BETWEEN_LINES
    before, after = ("\r\033[K", "") if terminal else ("", "\n")
    status = None
    while status is None:
        print(f"{before}{step.state()}", end=after, flush=True)
        status = step.ended(between)
    step.detail = "done" if status == 0 else "failed"
    print(f"{before}{step.state()}", flush=True)
    if status != 0:
        sys.stderr.writelines(step.output)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
