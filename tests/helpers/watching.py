"""Wait for the actions of other processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qgraph.rl.broadcast import Supervisor


def until(condition: Callable[[], Any], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def watched(run: Supervisor, condition: Callable[[], Any]) -> None:
    """Wait until the condition is true, or a process of the run has died."""
    until(lambda: run.check() is None and condition())


def gone(pid: int) -> bool:
    """Whether that process has ended; its exit status may be unread."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
