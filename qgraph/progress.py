"""Progress callbacks: the stage, how much is done, and how much there is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # stage, done, total
Steps = Callable[[int, int], None]  # done, total


def silent(stage: str, done: int, total: int) -> None:
    """Report no progress."""


def silent_steps(done: int, total: int) -> None:
    """Report no progress."""
