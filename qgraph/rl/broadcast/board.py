"""The board of a run: a row with the state of each process, in shared memory."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from qgraph.errors import LoadError, UsageError
from qgraph.rl.broadcast.memory import PAGE, Region, native, pages

MAGIC = np.frombuffer(b"qgraphb1", np.int64)[0]
TEXT = 2000  # bytes of a message
MAX_ROWS = 2048
FRONT = np.dtype([("magic", "i8"), ("rows", "i8"), ("stopping", "i8")])
ROW = np.dtype(
    [("state", "i8"), ("heartbeat", "i8"), ("message", f"S{TEXT}"), ("numbers", "f8", 8)]
)


class ProcessState(IntEnum):
    """The state of a process."""

    STARTING = 0
    RUNNING = 1
    STOPPED = 2
    FAILED = 3


class Board:
    """A row for each process. The supervisor creates the board, and its processes open it."""

    def __init__(self, region: Region, rows: int) -> None:
        self._region = region
        self.name = region.name
        view = region.view(0, region.size)
        self._front = np.frombuffer(view, FRONT, 1)[0]
        self.rows = np.frombuffer(view, ROW, rows, PAGE)

    @staticmethod
    def create(rows: int) -> Board:
        """Create a board. Raises UsageError, OutputError."""
        if not 0 < rows <= MAX_ROWS:
            raise UsageError(f"a run cannot have {rows} processes", hint=f"1 to {MAX_ROWS}")
        size = PAGE + pages(rows * ROW.itemsize)
        region = Region.create("board", size)
        region.reserve(0, size)
        board = Board(region, rows)
        board._front["magic"], board._front["rows"] = MAGIC, rows
        return board

    @staticmethod
    def open(name: str) -> Board:
        """Open the board that another process created. Raises LoadError."""
        region = Region.attach(name)
        front = np.frombuffer(region.view(0, PAGE, writable=False), FRONT, 1)[0]
        rows = int(front["rows"])
        size = PAGE + pages(rows * ROW.itemsize)
        if front["magic"] != MAGIC or not 0 < rows <= MAX_ROWS or size != region.size:
            raise LoadError("not the board of a run", node=name)
        return Board(region, rows)

    @property
    def stopping(self) -> bool:
        """Whether the run ends."""
        return bool(self._front["stopping"])

    def stop(self) -> None:
        """Tell all processes to end."""
        self._front["stopping"] = 1

    def row(self, number: int) -> np.void:
        """A row, whose fields can be set."""
        row: np.void = self.rows[number]
        return row

    def clear(self, number: int) -> None:
        """Prepare the row for a process that starts; the numbers of a crashed one stay."""
        for field in ("state", "message"):
            self.rows[field][number] = np.zeros((), ROW)[field]
        self.heartbeat(number)

    def heartbeat(self, number: int) -> None:
        """Record that a process is alive."""
        self.rows["heartbeat"][number] = native().now()
