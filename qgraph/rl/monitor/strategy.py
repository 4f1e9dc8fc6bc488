"""Strategies: from what the monitor saw to how policies are compressed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from qgraph.errors import UsageError
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.indicators import Indicators


@dataclass(frozen=True)
class Decision:
    """How policies are compressed from now on, and why.

    share: how often actors get the compressed policy, the original else (alpha of figure 9).
    """

    compressor: Compressor
    share: float = 1.0
    reason: str = ""


@dataclass(frozen=True)
class Look:
    """Indicators, the decision that was in force until then, and chains that do not work."""

    seen: Indicators
    acted: Decision
    refused: tuple[Compressor, ...] = ()


class Strategy(Protocol):
    """One of your own is a frozen dataclass with these two; its fields are its text.

    It keeps nothing: a decision is made from all looks so far (the newest last; at first there are
    none) and the chain that the user gave. A chain that does not work is not taken a second time:
    all stays as it is, as it does where the strategy fails. Where not even the first chain works,
    the strategy is asked for another by a look that saw nothing compressed, and is not kept.
    """

    def check(self, begun: Compressor) -> None:
        """Raises UsageError for a chain that it cannot steer, or settings that make no sense."""

    def decide(self, begun: Compressor, looks: Sequence[Look]) -> Decision: ...


def check_reachable(name: str, threshold: float) -> None:
    """Raises UsageError for a threshold that no number is above, or that all are."""
    if not (math.isfinite(threshold) and threshold > 0):
        raise UsageError(
            f"a threshold of {threshold} for {name} can never be passed or always is",
            hint="a finite number above 0",
        )


def stays(looks: Sequence[Look], reason: str = "stays") -> Decision:
    now = looks[-1].acted
    return Decision(now.compressor, now.share, reason)
