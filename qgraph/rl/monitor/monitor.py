"""The monitor: it looks at intervals, asks its strategy, and logs its decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from qgraph.errors import QGraphError, UsageError, reason_of
from qgraph.rl.compress.call_text import parse_call, print_call
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.growth import Growth
from qgraph.rl.monitor.indicators import Indicators
from qgraph.rl.monitor.log import DecisionRow, Log
from qgraph.rl.monitor.mix import Mix
from qgraph.rl.monitor.strategy import Decision, Look, Strategy, stays
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
MOST = 10_000  # looks that are remembered


def parse_strategy(text: str) -> Strategy:
    """`kl_max:14`, `reward_gap:10,step=0.3`, `mix:0.5`, `growth`, `watch`.

    A name with a dot is that of a dataclass to be imported: `my.module.Careful:3`. Raises
    UsageError.
    """
    name, _, arguments = text.partition(":")
    found: Strategy = parse_call(f"{name}({arguments})", STRATEGIES, "strategy")
    for method in ("check", "decide"):
        if not callable(getattr(found, method, None)):
            raise UsageError(f"`{name}` is not a strategy: it has no `{method}`")
    return found


def print_strategy(strategy: Strategy) -> str:
    """The text that `parse_strategy` reads."""
    name, _, arguments = print_call(strategy, STRATEGIES).partition("(")
    arguments = arguments.removesuffix(")")
    return f"{name}:{arguments}" if arguments else name


class Monitor:
    """The monitor of one run: `decision` is the one in force.

    With a log of a run that goes on it stands where it stood. Raises UsageError for a strategy
    that cannot steer the chain, or that fails.
    """

    def __init__(self, strategy: Strategy, begun: Compressor, log: Log | None = None) -> None:
        self.strategy, self.begun, self.log = strategy, begun, log
        self.looks: list[Look] = []
        self.refused: tuple[Compressor, ...] = ()  # chains that do not work
        try:
            strategy.check(begun)
            self.decision = self._decided(self.looks)
        except QGraphError:
            raise
        except Exception as error:  # of a strategy of one's own
            told = f"`{print_strategy(strategy)}` failed: {reason_of(error)}"
            raise UsageError(told) from error
        if log is not None and not log.kept:
            self._write(DecisionRow(Indicators(0, 0.0), self.decision, looked=False))
        for row in log.kept if log is not None else ():
            if row.looked and not row.failed:
                self._saw(row.seen)
            if row.refused is not None:
                self.refused += (row.refused,)
            self.decision = row.decision

    @property
    def worked(self) -> Decision | None:
        """The last decision that a look has seen at work; None before the first."""
        return self.looks[-1].acted if self.looks else None

    def look(self, seen: Indicators) -> Decision:
        """The decision after one more look; it is in force from now on. Where the strategy fails,
        all stays as it is.
        """
        self._saw(seen)
        self.decision = self._next(self.looks)
        self._write(DecisionRow(seen, self.decision))
        return self.decision

    def failed(
        self, seen: Indicators, reason: str, back: Decision | None = None, for_good: bool = False
    ) -> None:
        """Write down that compression failed, and that the last good policy acts on.

        back: a decision that is in force again from now on; before there is one, that which the
        strategy would make next. for_good: what is left for it is refused from now on; what
        numbers undid is not, and waits for other numbers where nothing has worked yet.
        """
        left, refused = self.decision.compressor, None
        if back is None and for_good:
            back = self._next([Look(seen, self.decision, (*self.refused, left))])
        told = f"failed, the last policy acts: {reason}"
        if back is not None and back.compressor != left:
            told, refused = f"failed, away from {left}: {reason}", left if for_good else None
        if refused is not None:
            self.refused += (refused,)
        self.decision = replace(back or self.decision, reason=told)
        self._write(DecisionRow(seen, self.decision, failed=True, refused=refused))

    def _next(self, looks: Sequence[Look]) -> Decision:
        try:
            found = self._decided(looks)
        except Exception as error:  # of a strategy of one's own
            return stays(looks, f"stays, the strategy failed: {reason_of(error)}")
        if found.compressor in looks[-1].refused:
            return stays(looks, f"stays: {found.compressor} has failed before")
        return found

    def _decided(self, looks: Sequence[Look]) -> Decision:
        found = self.strategy.decide(self.begun, looks)
        trouble = _trouble(found)
        if trouble:
            raise UsageError(f"`{print_strategy(self.strategy)}` decides {trouble}")
        return Decision(found.compressor, float(found.share), str(found.reason))

    def _write(self, row: DecisionRow) -> None:
        if self.log is not None:
            self.log.add(row)

    def _saw(self, seen: Indicators) -> None:
        """One more look, at what is in force."""
        self.looks = [*self.looks[1 - MOST :], Look(seen, self.decision, self.refused)]


def _trouble(found: Any) -> str:
    """The fault in the decision of a user's strategy; "" if it is valid."""
    if not isinstance(found, Decision):
        return f"{found}, no `Decision`"
    chain: Any = found.compressor
    if not isinstance(chain, Compressor):
        return f"on {chain!r}, no `Compressor`"
    return "" if 0 <= found.share <= 1 else f"on a share of {found.share}; it is 0 to 1"
