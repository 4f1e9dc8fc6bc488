"""Strategies: they decide from the monitor's looks how policies are compressed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from qgraph.errors import UsageError
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.indicators import Indicators


@dataclass(frozen=True)
class Decision:
    """How policies are compressed from now on, and the reason.

    share: the share of policies that actors get compressed; the others are the original (alpha in
    figure 9).
    """

    compressor: Compressor
    share: float = 1.0
    reason: str = ""


@dataclass(frozen=True)
class Look:
    """Indicators, the decision in use at that time, and the chains that have failed."""

    seen: Indicators
    acted: Decision
    refused: tuple[Compressor, ...] = ()


@runtime_checkable
class Strategy(Protocol):
    """The interface. A custom strategy is a frozen dataclass, whose fields are its text.

    It has no state: it decides from all looks so far (the newest last; none at first) and the
    user's chain. A chain that has failed is not used again: the decision stays, as it does if the
    strategy fails. If the first chain fails, the strategy is asked once with a look without
    measurements, which is not kept.
    """

    def check(self, begun: Compressor) -> None:
        """Raise UsageError for a chain that it cannot steer, or for settings out of range."""

    def decide(self, begun: Compressor, looks: Sequence[Look]) -> Decision: ...


def check_reachable(name: str, threshold: float) -> None:
    """Raise UsageError for a threshold that is never passed, or always."""
    if not (math.isfinite(threshold) and threshold > 0):
        raise UsageError(
            f"a threshold of {threshold} for {name} can never be passed or always is",
            hint="a finite number above 0",
        )


def stays(looks: Sequence[Look], reason: str = "stays") -> Decision:
    now = looks[-1].acted
    return Decision(now.compressor, now.share, reason)
