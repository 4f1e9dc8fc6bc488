"""Numbers of docs/training.md: ``python -m benchmarks.figures.numbers``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.figures.adam import guideline
from benchmarks.figures.cycle import Cycle, cycle_of
from benchmarks.figures.gradients import critical
from benchmarks.figures.toy import BITS, SIGMAS, adam, train

ALPHA = 0.01
STEPS, SETTLED = 20_000, 10_000
OCTAVE = [float(s) for s in 2 ** (np.arange(50) / 50)]  # other sigmas differ by powers of two


def steady(bits: int, fresh: bool, alpha: float = ALPHA, beta2: float = 0.999) -> list[Cycle]:
    """The cycle of each sigma under Adam."""
    boundaries = [critical(sigma, bits)[0] for sigma in SIGMAS]
    start = np.array(boundaries) + 0.5
    run = train(adam(alpha, beta2=beta2), bits, SIGMAS, STEPS, start, fresh=fresh).tail(SETTLED)
    return [
        cycle_of(run.log2_t[:, i], run.gradients[:, i], boundary)
        for i, boundary in enumerate(boundaries)
    ]


def of_cycles() -> Iterator[str]:
    """Rows: period and excursion, without noise and with it."""
    yield "| b | sigma | noise | r_g | T | steps below | excursion | alpha sqrt(r_g) | ratio |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for bits in BITS:
        kinds = {"no": steady(bits, False, beta2=0.9999), "yes": steady(bits, True)}
        for i, sigma in enumerate(SIGMAS):
            for noise, cycles in kinds.items():
                c = cycles[i]
                bound = c.bound(ALPHA)
                yield (
                    f"| {bits} | {sigma:g} | {noise} | {c.ratio:.4g} | {c.period:.4g} | "
                    f"{c.low_steps:.2f} | {c.excursion:.3f} | {bound:.3f} | "
                    f"{c.excursion / bound:.2f} |"
                )


def of_guidelines() -> Iterator[str]:
    """Rows: what the settings of table 4 lead to, over all sigmas of an octave."""
    yield "| b | alpha | beta2 | steps | arrived by then | slowest arrival | widest excursion |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for bits in BITS:
        guide = guideline(bits)
        boundaries = np.array([critical(sigma, bits)[0] for sigma in OCTAVE] * 2)
        start = boundaries + np.repeat([-0.5, 1.5], len(OCTAVE))
        rule = adam(guide.alpha, beta2=guide.beta2)
        off = train(rule, bits, OCTAVE * 2, int(4 * guide.steps), start).log2_t - boundaries
        arrival = np.argmax((off > 0) & (off <= 1), axis=0)
        widest = np.ptp(off[int(2 * guide.steps) :], axis=0).max()
        yield (
            f"| {bits} | {guide.alpha:.4f} | {guide.beta2:.5f} | {guide.steps:.0f} | "
            f"{(arrival <= guide.steps).mean():.0%} | {arrival.max()} | {widest:.2f} |"
        )


def of_ratios() -> Iterator[str]:
    """Rows: r_g over an octave of sigma, against p."""
    yield "| b | p | least r_g | median | greatest | at most p | at most 10 p |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for bits in BITS:
        p = 2 ** (bits - 1) - 1
        r = np.array([critical(sigma, bits)[1] for sigma in OCTAVE])
        yield (
            f"| {bits} | {p} | {r.min():.2g} | {np.median(r):.3g} | {r.max():.3g} | "
            f"{(r <= p).mean():.0%} | {(r <= 10 * p).mean():.0%} |"
        )


if __name__ == "__main__":
    for table in (of_cycles, of_guidelines, of_ratios):
        print("\n".join(table()), end="\n\n")
