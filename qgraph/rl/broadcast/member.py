"""A process of a run, seen from inside: its settings, its heartbeat, its end.

def main() -> None:
    with joined(MySettings) as (member, settings):
        ...
        while member.running():
            ...

if __name__ == "__main__":
    main()
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from qgraph.errors import QGraphError, UsageError
from qgraph.records import from_json
from qgraph.rl.broadcast.board import TEXT, Board, ProcessState
from qgraph.rl.broadcast.memory import native

T = TypeVar("T")
SLICE = 0.1  # seconds of waiting between heartbeats


@dataclass(frozen=True)
class BoardPlace:
    """The row of a process on the board of its run, and the id of the process that started it."""

    board: str
    row: int
    parent: int


class Member:
    """A process of a run: its row on the board that all processes of the run share.

    Args:
        board: The board.
        number: Number of the row.

    Attributes:
        numbers: Eight numbers of any meaning, float64 [8], that all processes can read. A restarted
            process finds those that it had before.

    Examples:
        >>> from qgraph.rl.broadcast import Member, joined
        >>> def main() -> None:
        ...     with joined(MySettings) as (member, settings):
        ...         while member.running():
        ...             member.numbers[0] += 1
    """

    def __init__(self, board: Board, number: int) -> None:
        self.board = board
        self.number = number
        self.numbers = board.rows["numbers"][number]

    def running(self) -> bool:
        """Report that this process is alive.

        Returns:
            Whether the run continues; False when the process should end.
        """
        self.board.heartbeat(self.number)
        return not self.board.stopping

    def wait(self, wait: Callable[[float], bool]) -> bool:
        """Call a function until it succeeds or the run ends.

        Args:
            wait: Called with the seconds that it may wait; returns whether it succeeded.

        Returns:
            Whether it succeeded before the run ended.
        """
        while self.running():
            if wait(SLICE):
                return True
        return False


@contextmanager
def joined(kind: type[T]) -> Iterator[tuple[Member, T]]:
    """Run a block as a process of a run, with the settings that `Supervisor.start` was given.

    The process is killed when its supervisor ends, and Ctrl-C is left to the supervisor. An
    exception is reported to the supervisor and ends the process with its exit code.

    Args:
        kind: Class of the settings, a record (`qgraph.records`).

    Returns:
        A context manager whose value is the process and its settings.

    Raises:
        UsageError: The process was not started by a supervisor.

    Examples:
        >>> from qgraph.rl.broadcast import joined
        >>> def main() -> None:
        ...     with joined(MySettings) as (member, settings):
        ...         while member.running():
        ...             work(settings)
    """
    place, settings = _standard_input()
    if not native().die_with(place.parent):
        os._exit(1)  # the supervisor has already ended
    member = Member(Board.open(place.board), place.row)
    row = member.board.row(member.number)
    row["state"] = ProcessState.RUNNING
    try:
        yield member, from_json(kind, settings)
    except Exception as error:
        known = isinstance(error, QGraphError)
        text = str(error) if known else "".join(traceback.format_exception(error))
        row["message"] = text.strip().encode()[-TEXT:]
        row["state"] = ProcessState.FAILED
        traceback.print_exc()
        sys.exit(error.exit_code if isinstance(error, QGraphError) else 1)
    row["state"] = ProcessState.STOPPED


def _standard_input() -> tuple[BoardPlace, object]:
    try:
        given = json.load(sys.stdin) if sys.argv[1:] == ["-"] else {}
        return from_json(BoardPlace, given["member"]), given["settings"]
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            "this process is part of a run and must be started by it", hint="use qgraph rl train"
        ) from None
