"""The time that one call of the benchmark may take."""

from __future__ import annotations

import time


class OutOfTime(Exception):
    """The time is over; what was done is kept, and the same command continues from there."""


class Clock:
    """Starts now and runs for that number of minutes."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def over(self) -> bool:
        return time.monotonic() >= self.end

    def check(self, done: str) -> None:
        """Raise OutOfTime, which names what was done last, if the time is over."""
        if self.over():
            raise OutOfTime(done)
