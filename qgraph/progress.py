"""Who watches long work: it tells what it does, how much is done, and how much there is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # stage, done, total
Steps = Callable[[int, int], None]  # done, total


def silent(stage: str, done: int, total: int) -> None:
    """For those who do not watch."""


def silent_steps(done: int, total: int) -> None:
    """For those who do not watch."""
