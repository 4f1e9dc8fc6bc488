"""Progress as plain lines on standard error, for logs and pipes."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from qgraph.progress import Progress
from qgraph.words import duration

LINE_SECONDS = 10.0  # between two lines


@contextmanager
def progress_lines() -> Iterator[Progress]:
    """A callback whose latest stage is printed every `LINE_SECONDS` while the block runs."""
    newest = "loading"
    begin = time.monotonic()
    ended = threading.Event()

    def report(stage: str, done: int, total: int) -> None:
        nonlocal newest
        newest = f"{stage} {done}/{total}" if total > 1 else stage

    def repeat() -> None:
        while not ended.wait(LINE_SECONDS):
            with suppress(OSError, ValueError):  # standard error may be closed
                print_line(f"{newest}, {duration(time.monotonic() - begin)}")

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield report
    finally:
        ended.set()
        thread.join()


class LinesOfSteps:
    """Prints a line when the last one is `LINE_SECONDS` old, with the number of steps."""

    def __init__(self) -> None:
        self.printed = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if self.is_due():
            self.print(f"{done:,} of {total:,} steps")

    def is_due(self) -> bool:
        """Whether the last line is old enough for another one."""
        return time.monotonic() - self.printed >= LINE_SECONDS

    def print(self, line: str) -> None:
        """Print a line now."""
        self.printed = time.monotonic()
        print_line(line)


def print_line(line: str) -> None:
    """Print a line to standard error at once."""
    print(line, file=sys.stderr, flush=True)
