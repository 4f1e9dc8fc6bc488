"""The monitor: it looks at intervals, asks its strategy, and writes down what it says and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from qgraph.errors import QGraphError, UsageError
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.compress.text import parse_call, print_call
from qgraph.rl.monitor.growth import Growth
from qgraph.rl.monitor.indicators import Indicators
from qgraph.rl.monitor.log import Log, Row
from qgraph.rl.monitor.mix import Mix
from qgraph.rl.monitor.strategy import Decision, Look, Strategy, stays
from qgraph.rl.monitor.thresholds import KlMax, RewardGap
from qgraph.rl.monitor.watch import Watch

STRATEGIES: Mapping[str, type[Any]] = MappingProxyType(
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
            raise UsageError(f"`{name}` is no strategy: it has no `{method}`")
    return found


def print_strategy(strategy: Strategy) -> str:
    """The text that `parse_strategy` reads."""
    name, _, arguments = print_call(strategy, STRATEGIES).partition("(")
    arguments = arguments.removesuffix(")")
    return f"{name}:{arguments}" if arguments else name


class Monitor:
    """Of one run: `decision` is the one in force.

    With a log of a run that goes on it stands where it stood. Raises UsageError for a strategy
    that cannot steer the chain, or that fails.
    """

    def __init__(self, strategy: Strategy, begun: Compressor, log: Log | None = None) -> None:
        self.strategy, self.begun, self.log = strategy, begun, log
        self.looks: list[Look] = []
        self.refused: tuple[Compressor, ...] = ()  # chains that do not work
        try:
            strategy.check(begun)
            self.decision = self._decided()
        except QGraphError:
            raise
        except Exception as error:  # of a strategy of one's own
            told = f"`{print_strategy(strategy)}` failed: {type(error).__name__}: {error}"
            raise UsageError(told) from error
        if log is not None and not log.kept:
            log.add(Row(Indicators(0, 0.0), self.decision, looked=False))
        for row in log.kept if log is not None else ():
            if row.looked and not row.failed:
                self._saw(row.seen)
            if row.refused is not None:
                self.refused += (row.refused,)
            self.decision = row.decision

    def look(self, seen: Indicators) -> Decision:
        """The decision after one more look; it is in force from now on."""
        self._saw(seen)
        found = self._decided()
        if found.compressor in self.refused:
            found = stays(self.looks, f"stays: {found.compressor} has failed before")
        self.decision = found
        if self.log is not None:
            self.log.add(Row(seen, self.decision))
        return self.decision

    def failed(
        self, seen: Indicators, reason: str, back: Decision | None = None, for_good: bool = False
    ) -> None:
        """Write down that compression failed, and that the last good policy acts on.

        back: a decision that is in force again from now on. for_good: that which is left for it is
        refused from now on.
        """
        left = self.decision.compressor
        told, refused = f"failed, the last policy acts: {reason}", None
        if back is not None and back.compressor != left:
            told, refused = f"failed, back from {left}: {reason}", left if for_good else None
        if refused is not None:
            self.refused += (refused,)
        self.decision = dataclasses.replace(back or self.decision, reason=told)
        if self.log is not None:
            self.log.add(Row(seen, self.decision, failed=True, refused=refused))

    def _decided(self) -> Decision:
        found = self.strategy.decide(self.begun, self.looks)
        if not isinstance(found, Decision):  # of a strategy of one's own
            raise UsageError(f"`{print_strategy(self.strategy)}` decides {found}, no `Decision`")
        return found

    def _saw(self, seen: Indicators) -> None:
        """One more look, at what is in force."""
        self.looks = [*self.looks[1 - MOST :], Look(seen, self.decision, self.refused)]
