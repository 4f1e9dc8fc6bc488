"""A process of a run, from within: its settings, its heart, its end.

def main() -> None:
    with joined() as (member, settings):
        ...
        while member.going():
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
from typing import Any

from qgraph.errors import QGraphError, UsageError
from qgraph.rl.broadcast.board import TEXT, Board, ProcessState
from qgraph.rl.broadcast.memory import native

SLICE = 0.1  # seconds of waiting between heartbeats


class Member:
    """This process's row of the board."""

    def __init__(self, board: Board, number: int) -> None:
        self.board = board
        self.number = number
        # float64 [8], of any meaning, for all to see. At first, those of one that crashed here.
        self.numbers = board.rows["numbers"][number]

    def going(self) -> bool:
        """Say that this process is alive; is the run to go on?"""
        self.board.beat(self.number)
        return not self.board.stopping

    def wait(self, wait: Callable[[float], bool]) -> bool:
        """Call `wait(seconds)` until it is true or the run ends: is it true?"""
        while self.going():
            if wait(SLICE):
                return True
        return False


@contextmanager
def joined() -> Iterator[tuple[Member, dict[str, Any]]]:
    """This process as one of a run; what the supervisor told it is on its standard input.

    It is killed when the supervisor ends, and Ctrl-C is left to that. An error is told to the
    supervisor and ends the process by its exit code.
    """
    settings = _settings()
    place = settings.pop("member")
    if not native().die_with(int(place["parent"])):
        os._exit(1)  # who started it is gone already
    member = Member(Board.open(place["board"]), int(place["row"]))
    row = member.board.row(member.number)
    row["state"] = ProcessState.RUNNING
    try:
        yield member, settings
    except Exception as error:
        known = isinstance(error, QGraphError)
        text = str(error) if known else "".join(traceback.format_exception(error))
        row["message"] = text.strip().encode()[-TEXT:]
        row["state"] = ProcessState.FAILED
        traceback.print_exc()
        sys.exit(error.exit_code if isinstance(error, QGraphError) else 1)
    row["state"] = ProcessState.STOPPED


def _settings() -> dict[str, Any]:
    try:
        found = json.load(sys.stdin) if sys.argv[1:] == ["-"] else {}
        if {"board", "row", "parent"} <= set(found["member"]):
            return dict(found)
    except (ValueError, KeyError, TypeError):
        pass
    raise UsageError("this is a part of a run and started by it", hint="use qgraph rl train")
