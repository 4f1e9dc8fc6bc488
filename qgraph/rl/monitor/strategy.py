"""Strategies: they decide from measurements how policies are compressed."""

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
    """How policies are compressed from now on.

    Attributes:
        compressor: The chain.
        share: Share of the policies that actors get compressed, 0 to 1; the others are the original
            (alpha in figure 9 of AcceRL).
        reason: The reason, for the log.

    Examples:
        >>> from qgraph.rl.compress import Compressor
        >>> from qgraph.rl.monitor import Decision
        >>> Decision(Compressor.parse("quantize(4)"), reason="start").share
        1.0
    """

    compressor: Compressor
    share: float = 1.0
    reason: str = ""


@dataclass(frozen=True)
class Measurement:
    """One measurement, with the decision that was in use.

    Attributes:
        indicators: The indicators.
        decision: The decision in use at that time.
        refused: The chains that have failed.

    Examples:
        >>> from qgraph.rl.compress import Compressor
        >>> from qgraph.rl.monitor import Decision, Indicators, Measurement
        >>> Measurement(Indicators(1000, 12.5), Decision(Compressor.parse("quantize(4)"))).refused
        ()
    """

    indicators: Indicators
    decision: Decision
    refused: tuple[Compressor, ...] = ()


@runtime_checkable
class Strategy(Protocol):
    """Interface of strategies. A custom strategy is a frozen dataclass, whose fields are its text.

    A strategy has no state: it decides from the chain of the user and all measurements so far. A
    chain that has failed is not used again. The decision does not change if the strategy fails. If
    the first chain fails, the strategy is asked once with a measurement that has no indicators and
    is not stored.

    Examples:
        >>> from dataclasses import dataclass
        >>> from qgraph.rl.monitor import Decision, Strategy
        >>> @dataclass(frozen=True)
        ... class Always:
        ...     def check(self, initial) -> None: ...
        ...     def decide(self, initial, measurements) -> Decision:
        ...         return Decision(initial)
        >>> isinstance(Always(), Strategy)
        True
    """

    def check(self, initial: Compressor) -> None:
        """Check that the strategy can control a chain.

        Args:
            initial: The chain of the user.

        Raises:
            UsageError: It cannot, or its settings are out of range.
        """

    def decide(self, initial: Compressor, measurements: Sequence[Measurement]) -> Decision:
        """Decide how policies are compressed.

        Args:
            initial: The chain of the user.
            measurements: All measurements so far, the newest last. Empty at first.

        Returns:
            The decision.
        """


def check_reachable(name: str, threshold: float) -> None:
    """Raise UsageError for a threshold that is never passed, or always."""
    if not (math.isfinite(threshold) and threshold > 0):
        raise UsageError(
            f"a threshold of {threshold} for {name} can never be passed or always is",
            hint="a finite number above 0",
        )


def stays(measurements: Sequence[Measurement], reason: str = "stays") -> Decision:
    now = measurements[-1].decision
    return Decision(now.compressor, now.share, reason)
