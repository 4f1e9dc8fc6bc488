"""The monitor: after each measurement it asks its strategy for a decision, and logs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from qgraph.errors import QGraphError, UsageError, reason_of
from qgraph.rl.compress.call_text import parse_call, print_call
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.growth import Growth
from qgraph.rl.monitor.indicators import Indicators
from qgraph.rl.monitor.log import DecisionRow, Log
from qgraph.rl.monitor.mix import Mix
from qgraph.rl.monitor.strategy import Decision, Measurement, Strategy, stays
from qgraph.rl.monitor.thresholds import KlMax, RewardGap
from qgraph.rl.monitor.watch import Watch

STRATEGIES: Mapping[str, type[object]] = MappingProxyType(
    {
        "kl_max": KlMax,
        "reward_gap": RewardGap,
        "mix": Mix,
        "growth": Growth,
        "watch": Watch,
    }
)
MAX_MEASUREMENTS = 10_000  # that are kept


def parse_strategy(text: str) -> Strategy:
    """Read a strategy from text.

    Args:
        text: Name and values: `kl_max:14`, `reward_gap:10,step=0.3`, `mix:0.5`, `growth` or
            `watch`. A custom strategy is written with its module: `my.module.Careful:3`.

    Returns:
        The strategy.

    Raises:
        UsageError: The strategy is unknown, or a value is out of range.

    Examples:
        >>> from qgraph.rl.monitor import parse_strategy
        >>> type(parse_strategy("kl_max:14")).__name__
        'KlMax'
    """
    name, _, arguments = text.partition(":")
    strategy = parse_call(f"{name}({arguments})", STRATEGIES, "strategy")
    for method in ("check", "decide"):
        if not callable(getattr(strategy, method, None)):
            raise UsageError(f"`{name}` is not a strategy: it has no `{method}`")
    assert isinstance(strategy, Strategy)
    return strategy


def print_strategy(strategy: Strategy) -> str:
    """The text that `parse_strategy` reads."""
    name, _, arguments = print_call(strategy, STRATEGIES).partition("(")
    arguments = arguments.removesuffix(")")
    return f"{name}:{arguments}" if arguments else name


class Monitor:
    """Asks a strategy for decisions during a run, and logs them.

    With the log of a resumed run it continues from the last row.

    Args:
        strategy: The strategy.
        initial: The chain of the user.
        log: The log to write to; None keeps decisions in memory only.

    Attributes:
        decision: The current decision.
        measurements: Measurements so far, at most 10,000.
        refused: Chains that have failed.

    Raises:
        UsageError: The strategy cannot control the chain, or it fails.

    Examples:
        >>> from qgraph.rl.compress import Compressor
        >>> from qgraph.rl.monitor import Indicators, Monitor, parse_strategy
        >>> monitor = Monitor(parse_strategy("watch"), Compressor.parse("quantize(4)"))
        >>> str(monitor.decide(Indicators(1000, 12.5, kl_max=0.2)).compressor)
        'quantize(4)'
    """

    def __init__(self, strategy: Strategy, initial: Compressor, log: Log | None = None) -> None:
        self.strategy, self.initial, self.log = strategy, initial, log
        self.measurements: list[Measurement] = []
        self.refused: tuple[Compressor, ...] = ()  # chains that failed
        try:
            strategy.check(initial)
            self.decision = self._decided(self.measurements)
        except QGraphError:
            raise
        except Exception as error:  # of a custom strategy
            why = f"`{print_strategy(strategy)}` failed: {reason_of(error)}"
            raise UsageError(why) from error
        if log is not None and not log.kept:
            self._write(DecisionRow(Indicators(0, 0.0), self.decision, looked=False))
        for row in log.kept if log is not None else ():
            if row.looked and not row.failed:
                self._store(row.indicators)
            if row.refused is not None:
                self.refused += (row.refused,)
            self.decision = row.decision

    @property
    def worked(self) -> Decision | None:
        """The last decision that was in use at a measurement; None before the first one."""
        return self.measurements[-1].decision if self.measurements else None

    def decide(self, indicators: Indicators) -> Decision:
        """Decide after one more measurement. If the strategy fails, the decision does not change.

        Args:
            indicators: The indicators.

        Returns:
            The decision.
        """
        self._store(indicators)
        self.decision = self._next(self.measurements)
        self._write(DecisionRow(indicators, self.decision))
        return self.decision

    def failed(
        self,
        indicators: Indicators,
        reason: str,
        back: Decision | None = None,
        for_good: bool = False,
    ) -> None:
        """Log that compression failed, so that actors keep the last good policy.

        Args:
            indicators: The indicators.
            reason: The reason, for the log.
            back: The decision to return to; None asks the strategy.
            for_good: Whether the chain that failed is refused from now on. A chain that failed
                because of the values of weights is not refused, since it may work with others.
        """
        left, refused = self.decision.compressor, None
        if back is None and for_good:
            back = self._next([Measurement(indicators, self.decision, (*self.refused, left))])
        why = f"failed, the last policy acts: {reason}"
        if back is not None and back.compressor != left:
            why, refused = f"failed, away from {left}: {reason}", left if for_good else None
        if refused is not None:
            self.refused += (refused,)
        self.decision = replace(back or self.decision, reason=why)
        self._write(DecisionRow(indicators, self.decision, failed=True, refused=refused))

    def _next(self, measurements: Sequence[Measurement]) -> Decision:
        try:
            decision = self._decided(measurements)
        except Exception as error:  # of a custom strategy
            return stays(measurements, f"stays, the strategy failed: {reason_of(error)}")
        if decision.compressor in measurements[-1].refused:
            return stays(measurements, f"stays: {decision.compressor} has failed before")
        return decision

    def _decided(self, measurements: Sequence[Measurement]) -> Decision:
        decision = self.strategy.decide(self.initial, measurements)
        fault = _fault(decision)
        if fault:
            raise UsageError(f"`{print_strategy(self.strategy)}` decides {fault}")
        return Decision(decision.compressor, float(decision.share), str(decision.reason))

    def _write(self, row: DecisionRow) -> None:
        if self.log is not None:
            self.log.add(row)

    def _store(self, indicators: Indicators) -> None:
        """Store a measurement with the current decision."""
        self.measurements = [
            *self.measurements[1 - MAX_MEASUREMENTS :],
            Measurement(indicators, self.decision, self.refused),
        ]


def _fault(decision: object) -> str:
    """The fault in the decision of a custom strategy; "" if it is valid."""
    if not isinstance(decision, Decision):
        return f"{decision}, which is not a `Decision`"
    chain: object = decision.compressor
    if not isinstance(chain, Compressor):
        return f"on {chain!r}, which is not a `Compressor`"
    return "" if 0 <= decision.share <= 1 else f"on a share of {decision.share}, not 0 to 1"
