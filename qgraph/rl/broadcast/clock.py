"""The clock of a run."""

from __future__ import annotations

from qgraph.rl.broadcast.memory import native


def now() -> float:
    """Seconds by a clock that all processes of a machine share."""
    return native().now() / 1e9
