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
from qgraph.rl.monitor.strategy import Decision, Measurement, check_reachable, stays
from qgraph.rl.setting_text import SettingText

LADDER = (4, 8, 16, 32)  # bits
QUIET = 0.5  # share of the threshold; below it an indicator counts as calm
FAILED = "what would be next has failed before"
Step = Callable[[Compressor, Compressor], Compressor | None]  # from now, initial


class _Steps(ABC):
    """One step more careful when `indicator` passes the threshold.

    After `patience` measurements below half of the threshold one step is taken back, to no less
    care than the chain began with. Chains that do not work are skipped.
    """

    threshold: float
    patience: int
    indicator: ClassVar[str]
    indicator_name: ClassVar[str]  # for the indicator
    measurement_name: ClassVar[str]  # what its measurements are, in words
    exhausted: ClassVar[str]  # why there is no more careful step
    change: ClassVar[str]  # from one `level` to another, in words

    @abstractmethod
    def more_careful(self, now: Compressor, initial: Compressor) -> Compressor | None:
        """The chain one step more careful; None if there is no such step."""

    @abstractmethod
    def less_careful(self, now: Compressor, initial: Compressor) -> Compressor | None:
        """The chain one step less careful; None if it is the first one."""

    @abstractmethod
    def level(self, chain: Compressor) -> float:
        """The value that steps change in a chain."""

    def check_steps(self) -> None:
        """Raise UsageError for settings that never change the chain, or never change it back."""
        check_reachable(self.indicator_name, self.threshold)
        if self.patience < 1:
            raise UsageError(f"patience is {self.patience} {self.measurement_name}; 1 or more")

    def decide(self, initial: Compressor, measurements: Sequence[Measurement]) -> Decision:
        if not measurements:
            return Decision(initial, reason="begins")
        newest = measurements[-1]
        value, now = getattr(newest.indicators, self.indicator), newest.decision.compressor
        if value > self.threshold:
            reason = f"{self.indicator_name} {value:.4g} > {self.threshold:g}"
            chain = _stepped(self.more_careful, now, initial, newest.refused)
            if chain is None:
                last = self.more_careful(now, initial) is None
                return stays(measurements, f"{reason}: {self.exhausted if last else FAILED}")
        else:
            calm_for = f"{self.patience} {self.measurement_name}"
            reason = f"{self.indicator_name} <= {QUIET * self.threshold:g} for {calm_for}"
            calm = self._calm(measurements)
            careful = _stepped(self.less_careful, now, initial, newest.refused)
            chain = careful if calm else None
            if chain is None:
                return stays(measurements)
        change = self.change.format(self.level(now), self.level(chain))
        return Decision(chain, reason=f"{reason}: {change}")

    def _calm(self, measurements: Sequence[Measurement]) -> bool:
        """Whether the newest measurements of the current chain were far below the threshold."""
        newest = self.relevant(measurements)[-self.patience :]
        return len(newest) == self.patience and all(
            getattr(measurement.indicators, self.indicator) <= QUIET * self.threshold
            and measurement.decision.compressor == measurements[-1].decision.compressor
            for measurement in newest
        )

    def relevant(self, measurements: Sequence[Measurement]) -> Sequence[Measurement]:
        """Measurements with a new measurement of the indicator."""
        return measurements


@dataclass(frozen=True)
class KlMax(_Steps):
    """More bits when KL max passes a threshold (AcceRL, section 2.4; 14 in figure 6)."""

    threshold: float = 14.0
    patience: int = 10
    indicator: ClassVar[str] = "kl_max"
    indicator_name: ClassVar[str] = "KL max"
    measurement_name: ClassVar[str] = "measurements"
    exhausted: ClassVar[str] = "all bits used"
    change: ClassVar[str] = "{} -> {} bits"

    def check(self, initial: Compressor) -> None:
        self.check_steps()
        if self.level(initial) == LADDER[-1]:
            raise UsageError(
                f"kl_max gives `quantize` more bits, but `{initial}` has no `quantize` whose bits "
                "can grow",
                hint=SettingText("{compress} 'quantize(8)'"),
            )

    def more_careful(self, now: Compressor, initial: Compressor) -> Compressor | None:
        more = [bits for bits in LADDER if bits > self.level(now)]
        return self._with(more[0], initial) if more else None

    def less_careful(self, now: Compressor, initial: Compressor) -> Compressor | None:
        bits, least = self.level(now), self.level(initial)
        if bits <= least:
            return None
        back = max((step for step in LADDER if least <= step < bits), default=least)
        return self._with(back, initial)

    def level(self, chain: Compressor) -> int:
        """The bits of `quantize`; without one, the most."""
        link = chain.quantize_link
        return LADDER[-1] if link is None else link.bits

    def _with(self, bits: int, initial: Compressor) -> Compressor:
        """The first chain with other bits, so that its layers keep their own bits."""
        return initial if bits == self.level(initial) else initial.with_bits(bits)


@dataclass(frozen=True)
class RewardGap(_Steps):
    """Less sparsity when the reward gap passes a threshold (AcceRL, section 2.4, figure 7).

    A step is `step` of sparsity (0.5, 0.2, 0 with 0.3). `patience` counts evaluations: measurements
    between two of them see the same gap.
    """

    threshold: float = 10.0
    step: float = 0.3
    patience: int = 5
    indicator: ClassVar[str] = "reward_gap"
    indicator_name: ClassVar[str] = "reward gap"
    measurement_name: ClassVar[str] = "evaluations"
    exhausted: ClassVar[str] = "nothing is pruned any more"
    change: ClassVar[str] = "sparsity {:g} -> {:g}"

    def check(self, initial: Compressor) -> None:
        self.check_steps()
        if not 0 < self.step <= 1:
            raise UsageError(f"steps of sparsity are {self.step}; they are above 0 and at most 1")
        if initial.first(Prune) is None:
            raise UsageError(
                f"reward_gap lowers the sparsity of `prune`, but `{initial}` prunes nothing",
                hint=SettingText("{compress} 'prune(0.5)'"),
            )
        links = initial.links[initial.links.index(initial.first(Prune)) :]
        if any(isinstance(link, Distill) and link.student for link in links):
            raise UsageError(
                "reward_gap lowers the sparsity of `prune`, but the student in "
                f"`{initial}` takes the place of what is left",
                hint="prune(0.5)|distill, where the pruned policy learns, or kl_max",
            )

    def more_careful(self, now: Compressor, initial: Compressor) -> Compressor | None:
        sparsity = self.level(now)
        return None if sparsity == 0 else _pruned(initial, max(sparsity - self.step, 0.0))

    def less_careful(self, now: Compressor, initial: Compressor) -> Compressor | None:
        sparsity, most = self.level(now), self.level(initial)
        return None if sparsity >= most else _pruned(initial, min(sparsity + self.step, most))

    def level(self, chain: Compressor) -> float:
        """The sparsity of its link `prune`, or 0 without one."""
        link = chain.first(Prune)
        return 0.0 if link is None else float(link.sparsity)

    def relevant(self, measurements: Sequence[Measurement]) -> Sequence[Measurement]:
        """The first measurement after each evaluation."""
        known = [
            measurement
            for measurement in measurements
            if math.isfinite(measurement.indicators.evaluated)
        ]
        first = {measurement.indicators.evaluated: measurement for measurement in reversed(known)}
        return [
            measurement
            for measurement in known
            if first[measurement.indicators.evaluated] is measurement
        ]


def _stepped(
    step: Step, now: Compressor, initial: Compressor, refused: Sequence[Compressor]
) -> Compressor | None:
    """The first chain after one or more steps that is not refused, or None."""
    chain = step(now, initial)
    while chain is not None and chain in refused:
        chain = step(chain, initial)
    return chain


def _pruned(initial: Compressor, sparsity: float) -> Compressor:
    sparsity = round(sparsity, 9)
    return initial.changed(
        Prune, lambda link: replace(link, sparsity=sparsity) if sparsity else None
    )
