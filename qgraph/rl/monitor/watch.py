"""The strategy that changes nothing, for runs that log indicators only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.strategy import Decision, Measurement


@dataclass(frozen=True)
class Watch:
    """Keeps the chain as it was given."""

    def check(self, initial: Compressor) -> None:
        """Accept every chain."""

    def decide(self, initial: Compressor, measurements: Sequence[Measurement]) -> Decision:
        return Decision(initial, reason="stays" if measurements else "begins")
