"""How each process of a run is doing: a row for each, in shared memory."""

from __future__ import annotations

import time
from enum import IntEnum
from typing import Any

import numpy as np

from qgraph.errors import LoadError, UsageError
from qgraph.rl.broadcast.memory import PAGE, Region, pages

MAGIC = np.frombuffer(b"qgraphb1", np.int64)[0]
TEXT = 2000  # bytes of a message
MAX_ROWS = 2048
FRONT = np.dtype([("magic", "i8"), ("rows", "i8"), ("stopping", "i8")])
ROW = np.dtype([("state", "i8"), ("beat", "i8"), ("message", f"S{TEXT}"), ("numbers", "f8", 8)])


class ProcessState(IntEnum):
    """The row of one process."""

    STARTING = 0
    RUNNING = 1
    STOPPED = 2
    FAILED = 3


class Board:
    """Rows by number; made by the supervisor, opened by its processes."""

    def __init__(self, region: Region, rows: int) -> None:
        self._region = region
        self.name = region.name
        view = region.view(0, region.size)
        self._front = np.frombuffer(view, FRONT, 1)[0]
        self.rows = np.frombuffer(view, ROW, rows, PAGE)

    @staticmethod
    def create(rows: int) -> Board:
        """Raises UsageError, OutputError."""
        if not 0 < rows <= MAX_ROWS:
            raise UsageError(f"a run of {rows} processes", hint=f"at most {MAX_ROWS}")
        size = PAGE + pages(rows * ROW.itemsize)
        region = Region.create("board", size)
        region.reserve(0, size)
        board = Board(region, rows)
        board._front["magic"], board._front["rows"] = MAGIC, rows
        return board

    @staticmethod
    def open(name: str) -> Board:
        """Raises LoadError."""
        region = Region.attach(name)
        front = np.frombuffer(region.view(0, PAGE, writable=False), FRONT, 1)[0]
        rows = int(front["rows"])
        if front["magic"] != MAGIC or not 0 < rows <= MAX_ROWS:
            raise LoadError("is not the board of a run", node=name)
        return Board(region, rows)

    @property
    def stopping(self) -> bool:
        """Is the run to end?"""
        return bool(self._front["stopping"])

    def stop(self) -> None:
        self._front["stopping"] = 1

    def row(self, number: int) -> Any:
        """Fields of a row, which can be set."""
        return self.rows[number]

    def clear(self, number: int) -> None:
        """Make ready for a process that starts: it finds the numbers of one that crashed there."""
        for field in ("state", "message"):
            self.rows[field][number] = np.zeros((), ROW)[field]
        self.beat(number)

    def beat(self, number: int) -> None:
        """Say that a process is alive."""
        self.rows["beat"][number] = time.monotonic_ns()
