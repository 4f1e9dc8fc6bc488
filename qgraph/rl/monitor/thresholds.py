"""Strategies with a threshold: above it, compression gets more careful step by step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from qgraph.errors import UsageError
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.compress.distill import Distill
from qgraph.rl.compress.prune import Prune
from qgraph.rl.monitor.strategy import Decision, Look, check_reachable, stays
from qgraph.rl.setting_text import SettingText

LADDER = (4, 8, 16, 32)  # bits
QUIET = 0.5  # share of the threshold; below it an indicator counts as calm
FAILED = "what would be next has failed before"
Step = Callable[[Compressor, Compressor], Compressor | None]  # from now, begun


class _Steps(ABC):
    """One step more careful when `indicator` passes the threshold.

    After `patience` measurements below half of the threshold one step is taken back, to no less
    care than the chain began with. Steps to chains that do not work are passed over.
    """

    threshold: float
    patience: int
    indicator: ClassVar[str]
    words: ClassVar[str]  # for the indicator
    measured: ClassVar[str]  # what its measurements are, in words
    spent: ClassVar[str]  # why there is no more careful step
    change: ClassVar[str]  # from one `care` to another, in words

    @abstractmethod
    def more_careful(self, now: Compressor, begun: Compressor) -> Compressor | None:
        """The chain one step more careful; None if there is no such step."""

    @abstractmethod
    def less_careful(self, now: Compressor, begun: Compressor) -> Compressor | None:
        """The chain one step less careful; None if it is the first one."""

    @abstractmethod
    def care(self, chain: Compressor) -> float:
        """The value that steps change in a chain."""

    def check_steps(self) -> None:
        """Raise UsageError for settings that never change the chain, or never change it back."""
        check_reachable(self.words, self.threshold)
        if self.patience < 1:
            raise UsageError(f"patience is {self.patience} {self.measured}; 1 or more")

    def decide(self, begun: Compressor, looks: Sequence[Look]) -> Decision:
        if not looks:
            return Decision(begun, reason="begins")
        value, now = getattr(looks[-1].seen, self.indicator), looks[-1].acted.compressor
        refused = looks[-1].refused
        if value > self.threshold:
            reason = f"{self.words} {value:.4g} > {self.threshold:g}"
            chain = _stepped(self.more_careful, now, begun, refused)
            if chain is None:
                last = self.more_careful(now, begun) is None
                return stays(looks, f"{reason}: {self.spent if last else FAILED}")
        else:
            reason = (
                f"{self.words} <= {QUIET * self.threshold:g} for {self.patience} {self.measured}"
            )
            calm = self._calm(looks)
            chain = _stepped(self.less_careful, now, begun, refused) if calm else None
            if chain is None:
                return stays(looks)
        change = self.change.format(self.care(now), self.care(chain))
        return Decision(chain, reason=f"{reason}: {change}")

    def _calm(self, looks: Sequence[Look]) -> bool:
        """Whether the newest measurements of the current chain were far below the threshold."""
        newest = self.measurements(looks)[-self.patience :]
        return len(newest) == self.patience and all(
            getattr(look.seen, self.indicator) <= QUIET * self.threshold
            and look.acted.compressor == looks[-1].acted.compressor
            for look in newest
        )

    def measurements(self, looks: Sequence[Look]) -> Sequence[Look]:
        """Looks with a new measurement of the indicator."""
        return looks


@dataclass(frozen=True)
class KlMax(_Steps):
    """More bits when KL max passes a threshold (AcceRL, section 2.4; 14 in figure 6)."""

    threshold: float = 14.0
    patience: int = 10
    indicator: ClassVar[str] = "kl_max"
    words: ClassVar[str] = "KL max"
    measured: ClassVar[str] = "looks"
    spent: ClassVar[str] = "all bits used"
    change: ClassVar[str] = "{} -> {} bits"

    def check(self, begun: Compressor) -> None:
        self.check_steps()
        if self.care(begun) == LADDER[-1]:
            raise UsageError(
                f"kl_max gives `quantize` more bits, but `{begun}` has no `quantize` whose bits "
                "can grow",
                hint=SettingText("{compress} 'quantize(8)'"),
            )

    def more_careful(self, now: Compressor, begun: Compressor) -> Compressor | None:
        more = [bits for bits in LADDER if bits > self.care(now)]
        return self._with(more[0], begun) if more else None

    def less_careful(self, now: Compressor, begun: Compressor) -> Compressor | None:
        bits, least = self.care(now), self.care(begun)
        if bits <= least:
            return None
        back = max((step for step in LADDER if least <= step < bits), default=least)
        return self._with(back, begun)

    def care(self, chain: Compressor) -> int:
        """The bits of `quantize`; without one, the most."""
        link = chain.quantize_link
        return LADDER[-1] if link is None else link.bits

    def _with(self, bits: int, begun: Compressor) -> Compressor:
        """The first chain with other bits, so that its layers keep their own bits."""
        return begun if bits == self.care(begun) else begun.with_bits(bits)


@dataclass(frozen=True)
class RewardGap(_Steps):
    """Less sparsity when the reward gap passes a threshold (AcceRL, section 2.4, figure 7).

    A step is `step` of sparsity (0.5, 0.2, 0 with 0.3). `patience` counts evaluations: looks
    between two of them see the same gap.
    """

    threshold: float = 10.0
    step: float = 0.3
    patience: int = 5
    indicator: ClassVar[str] = "reward_gap"
    words: ClassVar[str] = "reward gap"
    measured: ClassVar[str] = "evaluations"
    spent: ClassVar[str] = "nothing is pruned any more"
    change: ClassVar[str] = "sparsity {:g} -> {:g}"

    def check(self, begun: Compressor) -> None:
        self.check_steps()
        if not 0 < self.step <= 1:
            raise UsageError(f"steps of sparsity are {self.step}; they are above 0 and at most 1")
        if begun.first(Prune) is None:
            raise UsageError(
                f"reward_gap lowers the sparsity of `prune`, but `{begun}` prunes nothing",
                hint=SettingText("{compress} 'prune(0.5)'"),
            )
        links = begun.links[begun.links.index(begun.first(Prune)) :]
        if any(isinstance(link, Distill) and link.student for link in links):
            raise UsageError(
                "reward_gap lowers the sparsity of `prune`, but the student in "
                f"`{begun}` takes the place of what is left",
                hint="prune(0.5)|distill, where the pruned policy learns, or kl_max",
            )

    def more_careful(self, now: Compressor, begun: Compressor) -> Compressor | None:
        sparsity = self.care(now)
        return None if sparsity == 0 else _pruned(begun, max(sparsity - self.step, 0.0))

    def less_careful(self, now: Compressor, begun: Compressor) -> Compressor | None:
        sparsity, most = self.care(now), self.care(begun)
        return None if sparsity >= most else _pruned(begun, min(sparsity + self.step, most))

    def care(self, chain: Compressor) -> float:
        """The sparsity of its link `prune`, or 0 without one."""
        link = chain.first(Prune)
        return 0.0 if link is None else float(link.sparsity)

    def measurements(self, looks: Sequence[Look]) -> Sequence[Look]:
        """The first look after each evaluation."""
        known = [look for look in looks if math.isfinite(look.seen.evaluated)]
        first = {look.seen.evaluated: look for look in reversed(known)}
        return [look for look in known if first[look.seen.evaluated] is look]


def _stepped(
    step: Step, now: Compressor, begun: Compressor, refused: Sequence[Compressor]
) -> Compressor | None:
    """The first chain after one or more steps that is not refused, or None."""
    chain = step(now, begun)
    while chain is not None and chain in refused:
        chain = step(chain, begun)
    return chain


def _pruned(begun: Compressor, sparsity: float) -> Compressor:
    sparsity = round(sparsity, 9)
    return begun.changed(Prune, lambda link: replace(link, sparsity=sparsity) if sparsity else None)
