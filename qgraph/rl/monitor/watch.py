"""The strategy that changes nothing, for runs that log indicators only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.strategy import Decision, Look


@dataclass(frozen=True)
class Watch:
    """Keeps the chain as it was given."""

    def check(self, begun: Compressor) -> None:
        """Accept every chain."""

    def decide(self, begun: Compressor, looks: Sequence[Look]) -> Decision:
        return Decision(begun, reason="stays" if looks else "begins")
