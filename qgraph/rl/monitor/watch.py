"""The strategy that changes nothing: for who wants the indicators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.strategy import Decision, Look


@dataclass(frozen=True)
class Watch:
    """The chain stays as it was given."""

    def check(self, begun: Compressor) -> None:
        """Any will do."""

    def decide(self, begun: Compressor, looks: Sequence[Look]) -> Decision:
        return Decision(begun, reason="stays" if looks else "begins")
