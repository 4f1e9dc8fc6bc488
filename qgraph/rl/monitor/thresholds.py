"""Strategies with a threshold: what is above it makes compression more careful, step by step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from qgraph.errors import UsageError
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.compress.distill import Distill
from qgraph.rl.compress.prune import Prune
from qgraph.rl.compress.quantize import Quantize
from qgraph.rl.monitor.strategy import Decision, Look, check_reachable, stays

LADDER = (4, 8, 16, 32)  # bits
QUIET = 0.5  # of the threshold: below it an indicator is taken as calm


class _Steps(ABC):
    """One step more careful when `indicator` passes the threshold.

    After `patience` measurements below half of the threshold one step is taken back, to no less
    care than the chain began with.
    """

    threshold: float
    patience: int
    indicator: ClassVar[str]
    words: ClassVar[str]  # for the indicator
    measured: ClassVar[str]  # what its measurements are, in words
    spent: ClassVar[str]  # why there is no more careful step

    @abstractmethod
    def more_careful(self, now: Compressor, begun: Compressor) -> tuple[Compressor, str] | None:
        """The chain one step on, and what the step changes; None where there is no such step."""

    @abstractmethod
    def less_careful(self, now: Compressor, begun: Compressor) -> tuple[Compressor, str] | None:
        """The chain one step back; None where it is as it began."""

    def check_steps(self) -> None:
        """Raises UsageError for settings by which nothing would ever be changed, or back."""
        check_reachable(self.words, self.threshold)
        if self.patience < 1:
            raise UsageError(f"patience is {self.patience} {self.measured}; 1 or more")

    def decide(self, begun: Compressor, looks: Sequence[Look]) -> Decision:
        if not looks:
            return Decision(begun, reason="begins")
        value, now = getattr(looks[-1].seen, self.indicator), looks[-1].acted.compressor
        if value > self.threshold:
            reason = f"{self.words} {value:.4g} > {self.threshold:g}"
            step = self.more_careful(now, begun)
            if step is None:
                return stays(looks, f"{reason}: {self.spent}")
        else:
            reason = (
                f"{self.words} <= {QUIET * self.threshold:g} for {self.patience} {self.measured}"
            )
            step = self.less_careful(now, begun) if self._calm(looks) else None
            if step is None:
                return stays(looks)
        made, change = step
        return Decision(made, reason=f"{reason}: {change}")

    def _calm(self, looks: Sequence[Look]) -> bool:
        """The newest measurements, all of them of what acts now, were far below the threshold."""
        newest = self.measurements(looks)[-self.patience :]
        return len(newest) == self.patience and all(
            getattr(look.seen, self.indicator) <= QUIET * self.threshold
            and look.acted.compressor == looks[-1].acted.compressor
            for look in newest
        )

    def measurements(self, looks: Sequence[Look]) -> Sequence[Look]:
        """Looks that saw the indicator measured anew."""
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

    def check(self, begun: Compressor) -> None:
        self.check_steps()
        link = begun.first(Quantize)
        if link is None or link.bits == LADDER[-1]:
            raise UsageError(
                f"kl_max gives `quantize` more bits, but `{begun}` has none to give more to",
                hint="--compress 'quantize(8)'",
            )

    def more_careful(self, now: Compressor, begun: Compressor) -> tuple[Compressor, str] | None:
        more = [bits for bits in LADDER if bits > now.first(Quantize).bits]
        return _bits(now, begun, more[0]) if more else None

    def less_careful(self, now: Compressor, begun: Compressor) -> tuple[Compressor, str] | None:
        bits, least = now.first(Quantize).bits, begun.first(Quantize).bits
        if bits <= least:
            return None
        back = max((step for step in LADDER if least <= step < bits), default=least)
        return _bits(now, begun, back)


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

    def check(self, begun: Compressor) -> None:
        self.check_steps()
        if not 0 < self.step <= 1:
            raise UsageError(f"steps of sparsity are {self.step}; they are above 0 and at most 1")
        if begun.first(Prune) is None:
            raise UsageError(
                f"reward_gap lowers the sparsity of `prune`, but `{begun}` prunes nothing",
                hint="--compress 'prune(0.5)'",
            )
        links = begun.links[begun.links.index(begun.first(Prune)) :]
        if any(isinstance(link, Distill) and link.student for link in links):
            raise UsageError(
                "reward_gap lowers the sparsity of `prune`, but the student in "
                f"`{begun}` takes the place of what is left",
                hint="prune(0.5)|distill, where the pruned policy learns, or kl_max",
            )

    def more_careful(self, now: Compressor, begun: Compressor) -> tuple[Compressor, str] | None:
        sparsity = _pruned(now)
        return None if sparsity == 0 else _sparsity(now, begun, max(sparsity - self.step, 0.0))

    def less_careful(self, now: Compressor, begun: Compressor) -> tuple[Compressor, str] | None:
        sparsity, most = _pruned(now), _pruned(begun)
        return None if sparsity >= most else _sparsity(now, begun, min(sparsity + self.step, most))

    def measurements(self, looks: Sequence[Look]) -> Sequence[Look]:
        """The first look that saw each evaluation."""
        known = [look for look in looks if math.isfinite(look.seen.evaluated)]
        first = {look.seen.evaluated: look for look in reversed(known)}
        return [look for look in known if first[look.seen.evaluated] is look]


def _bits(now: Compressor, begun: Compressor, bits: int) -> tuple[Compressor, str]:
    """Of the chain as it began, so that layers keep the bits of their own that it gave them."""
    same = bits == begun.first(Quantize).bits
    made = begun if same else begun.changed(Quantize, lambda link: link.with_bits(bits))
    return made, f"{now.first(Quantize).bits} -> {bits} bits"


def _pruned(chain: Compressor) -> float:
    """The sparsity of its link `prune`, which is gone where nothing is pruned."""
    link = chain.first(Prune)
    return 0.0 if link is None else float(link.sparsity)


def _sparsity(now: Compressor, begun: Compressor, sparsity: float) -> tuple[Compressor, str]:
    sparsity = round(sparsity, 9)
    made = begun.changed(Prune, lambda link: replace(link, sparsity=sparsity) if sparsity else None)
    return made, f"sparsity {_pruned(now):g} -> {sparsity:g}"
