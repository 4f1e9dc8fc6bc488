"""The advanced strategy: a bandit over chains, whose reward is the growth of the return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qgraph.errors import UsageError
from qgraph.rl.compress.call_text import split
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.monitor.indicators import RECENT
from qgraph.rl.monitor.strategy import Decision, Measurement, stays

USUAL = (4, 8, 16)  # bits of the default arms


@dataclass(frozen=True)
class Growth:
    """Chooses the chain with which returns grow fastest per second (AcceRL, equation 6).

    It uses discounted upper confidence bounds (Garivier and Moulines, 2011): older trials count
    less, since learning has stages. Each chain is tried once at first; one that fails is dropped. A
    trial lasts twice as many episodes as `returned` averages: the first half makes it a mean of the
    chain's own episodes, the second half measures its growth.

    arms        chains separated by `;`; by default the user's chain with 4, 8 and 16 bits
    exploration the weight of the bound, in ranges of the growth so far
    discount    the factor of a trial with each later one
    """

    arms: str = ""
    exploration: float = 0.5
    discount: float = 0.98

    def check(self, initial: Compressor) -> None:
        if len(set(self.chains(initial))) < 2:
            raise UsageError(
                "growth chooses between two settings or more",
                hint="growth:quantize(8);prune(0.5)|quantize(8), or a chain with `quantize`",
            )
        if not (0 < self.discount <= 1 and 0 <= self.exploration < math.inf):
            raise UsageError(
                "growth needs a discount above 0 to 1, and an exploration of at least 0"
            )

    def chains(self, initial: Compressor) -> list[Compressor]:
        if self.arms:
            return [Compressor.parse(part) for part in split(self.arms, ";")]
        if initial.quantize_link is None:
            return [initial]
        return [initial.with_bits(bits) for bits in USUAL]

    def decide(self, initial: Compressor, measurements: Sequence[Measurement]) -> Decision:
        refused = measurements[-1].refused if measurements else ()
        chains = [chain for chain in self.chains(initial) if chain not in refused]
        if not chains:
            return stays(measurements, "stays: no setting works")
        gained, finished = trials(measurements)
        if not finished and measurements[-1].decision.compressor in chains:
            return stays(
                measurements, f"stays: {measurements[-1].decision.compressor} is being tried"
            )
        tried = {chain for chain, _ in gained}
        for chain in chains:
            if chain not in tried:
                return Decision(chain, reason="not tried yet")
        bounds = self._bounds(chains, gained)
        best = max(range(len(chains)), key=lambda i: bounds[i][1])
        mean, bound = bounds[best]
        reason = f"growth {mean:.4g} per second, at most {bound:.4g}: the highest bound"
        return Decision(chains[best], reason=reason)

    def _bounds(
        self, chains: Sequence[Compressor], gained: Sequence[tuple[Compressor, float]]
    ) -> list[tuple[float, float]]:
        """The discounted mean of each chain, and its upper bound."""
        weights = [self.discount**age for age in range(len(gained))][::-1]
        values = [value for _, value in gained]
        span, total = max(values) - min(values), sum(weights)
        found = []
        for chain in chains:
            own = [(w, v) for w, (c, v) in zip(weights, gained, strict=True) if c == chain]
            count = sum(w for w, _ in own)
            if count == 0:  # so long ago that it counts for nothing
                found.append((math.nan, math.inf))
                continue
            mean = sum(w * v for w, v in own) / count
            wide = math.sqrt(max(math.log(total), 0.0) / count)
            found.append((mean, mean + self.exploration * span * wide))
        return found


def trials(measurements: Sequence[Measurement]) -> tuple[list[tuple[Compressor, float]], bool]:
    """The chain of each trial with the growth of the return per second; whether the last is over.

    Without measurements, no trial is in progress.
    """
    finished, over = list[tuple[Compressor, float]](), True
    chain = None
    began, ended = 0.0, 0.0  # episodes when it began to act, and at the previous measurement
    own = None  # the measurement from which `returned` is of this chain only
    for measurement in measurements:
        indicators, over = measurement.indicators, False
        if measurement.decision.compressor != chain:
            chain, began, own = measurement.decision.compressor, ended, None
        if not math.isfinite(indicators.returned):  # a resumed run has no episode yet
            pass
        elif own is None:
            if indicators.episodes - began >= RECENT:
                own = indicators
        elif indicators.episodes - own.episodes >= RECENT and indicators.seconds > own.seconds:
            grown = indicators.returned - own.returned
            seconds = indicators.seconds - own.seconds
            finished.append((measurement.decision.compressor, grown / seconds))
            own, over = indicators, True
        ended = indicators.episodes
    return finished, over
