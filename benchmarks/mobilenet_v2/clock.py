"""The time limit of one call of the benchmark."""

from __future__ import annotations

import time


class OutOfTime(Exception):
    """The time is over. Finished work is kept, and the same command continues from there."""


class Clock:
    """A clock that starts now and ends after `minutes`."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def over(self) -> bool:
        return time.monotonic() >= self.end

    def check(self, done: str) -> None:
        """Raise OutOfTime, with what was done last, if the time is over."""
        if self.over():
            raise OutOfTime(done)
