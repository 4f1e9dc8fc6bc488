"""Strategies with a threshold: what is above it makes compression more careful, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qgraph.errors import UsageError
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.compress.prune import Prune
from qgraph.rl.compress.quantize import Quantize
from qgraph.rl.monitor.strategy import Decision, Look, check_reachable, stays

LADDER = (4, 8, 16, 32)  # bits
QUIET = 0.5  # of the threshold: below it an indicator is taken as calm


@dataclass(frozen=True)
class KlMax:
    """More bits when KL max passes a threshold (AcceRL, section 2.4; 14 in figure 6).

    After `patience` looks below half of the threshold one step is taken back, to no fewer bits than
    the chain began with.
    """

    threshold: float = 14.0
    patience: int = 10

    def check(self, begun: Compressor) -> None:
        check_reachable("KL max", self.threshold)
        link = begun.first(Quantize)
        if link is None or link.bits == LADDER[-1]:
            raise UsageError(
                f"kl_max gives `quantize` more bits, but `{begun}` has none to give more to",
                hint="--compress 'quantize(8)'",
            )

    def decide(self, begun: Compressor, looks: Sequence[Look]) -> Decision:
        if not looks:
            return Decision(begun, reason="begins")
        value, now = looks[-1].seen.kl_max, looks[-1].acted.compressor
        bits, least = now.first(Quantize).bits, begun.first(Quantize).bits
        if value > self.threshold:
            more = [step for step in LADDER if step > bits]
            reason = f"KL max {value:.4g} > {self.threshold:g}"
            return _bits(now, more[0], reason) if more else stays(looks, f"{reason}: all bits used")
        if bits > least and _calm(looks, "kl_max", self.threshold, self.patience):
            fewer = max((step for step in LADDER if least <= step < bits), default=least)
            reason = f"KL max <= {QUIET * self.threshold:g} for {self.patience} looks"
            return _bits(now, fewer, reason)
        return stays(looks)


@dataclass(frozen=True)
class RewardGap:
    """Less sparsity when the reward gap passes a threshold (AcceRL, section 2.4, figure 7).

    Each time `step` of sparsity is given up (0.5, 0.2, 0 with 0.3). After `patience` looks below
    half of the threshold one step is taken back, to at most what the chain began with.
    """

    threshold: float = 10.0
    step: float = 0.3
    patience: int = 10

    def check(self, begun: Compressor) -> None:
        check_reachable("the reward gap", self.threshold)
        check_reachable("steps of sparsity", self.step)
        link = begun.first(Prune)
        if link is None or link.sparsity == 0:
            raise UsageError(
                f"reward_gap lowers the sparsity of `prune`, but `{begun}` prunes nothing",
                hint="--compress 'prune(0.5)'",
            )

    def decide(self, begun: Compressor, looks: Sequence[Look]) -> Decision:
        if not looks:
            return Decision(begun, reason="begins")
        value, now = looks[-1].seen.reward_gap, looks[-1].acted.compressor
        sparsity, most = now.first(Prune).sparsity, begun.first(Prune).sparsity
        if value > self.threshold:
            reason = f"reward gap {value:.4g} > {self.threshold:g}"
            if sparsity == 0:
                return stays(looks, f"{reason}: nothing is pruned any more")
            return _sparsity(now, max(sparsity - self.step, 0.0), reason)
        if sparsity < most and _calm(looks, "reward_gap", self.threshold, self.patience):
            reason = f"reward gap <= {QUIET * self.threshold:g} for {self.patience} looks"
            return _sparsity(now, min(sparsity + self.step, most), reason)
        return stays(looks)


def _calm(looks: Sequence[Look], indicator: str, threshold: float, patience: int) -> bool:
    """The newest looks, all of them at what acts now, were far below the threshold."""
    newest = looks[-patience:]
    return len(newest) == patience and all(
        getattr(look.seen, indicator) <= QUIET * threshold
        and look.acted.compressor == looks[-1].acted.compressor
        for look in newest
    )


def _bits(now: Compressor, bits: int, reason: str) -> Decision:
    before = now.first(Quantize).bits
    made = now.changed(Quantize, lambda link: link.with_bits(bits))
    return Decision(made, reason=f"{reason}: {before} -> {bits} bits")


def _sparsity(now: Compressor, sparsity: float, reason: str) -> Decision:
    before, sparsity = now.first(Prune).sparsity, round(sparsity, 9)
    made = now.changed(Prune, lambda link: replace(link, sparsity=sparsity))
    return Decision(made, reason=f"{reason}: sparsity {before:g} -> {sparsity:g}")
