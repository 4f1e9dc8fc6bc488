"""Print the tables of docs/tqt.md: ``python -m benchmarks.figures.numbers``."""

from __future__ import annotations

import numpy as np
import typer

from benchmarks.figures.adam import guideline
from benchmarks.figures.cycle import Cycle, cycle_of
from benchmarks.figures.gradients import critical
from benchmarks.figures.toy import BITS, SIGMAS, adam, train
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table

ALPHA = 0.01
STEPS, SETTLED = 20_000, 10_000
OCTAVE = [float(s) for s in 2 ** (np.arange(50) / 50)]  # other sigmas are these times powers of two


def steady(bits: int, fresh: bool, alpha: float = ALPHA, beta2: float = 0.999) -> list[Cycle]:
    """The cycle of each sigma with Adam."""
    boundaries = [critical(sigma, bits)[0] for sigma in SIGMAS]
    start = np.array(boundaries) + 0.5
    run = train(adam(alpha, beta2=beta2), bits, SIGMAS, STEPS, start, fresh=fresh).tail(SETTLED)
    return [
        cycle_of(run.log2_t[:, i], run.gradients[:, i], boundary)
        for i, boundary in enumerate(boundaries)
    ]


def of_cycles() -> Table:
    """Period and excursion, with and without noise."""
    made = Table(
        "Cycles",
        {"b": "d", "sigma": "g", "noise": "", "r_g": ".4g", "T": ".4g", "steps below": ".2f",
         "excursion": ".3f", "alpha sqrt(r_g)": ".3f", "ratio": ".2f"},
    )  # fmt: skip
    for bits in BITS:
        kinds = {"no": steady(bits, False, beta2=0.9999), "yes": steady(bits, True)}
        for i, sigma in enumerate(SIGMAS):
            for noise, cycles in kinds.items():
                c = cycles[i]
                bound = c.bound(ALPHA)
                numbers = (c.ratio, c.period, c.low_steps, c.excursion, bound, c.excursion / bound)
                made.add(bits, float(sigma), noise, *map(float, numbers))
    return made


def of_guidelines() -> Table:
    """The result of the settings of table 4, over all sigmas of an octave."""
    made = Table(
        "Settings of table 4",
        {"b": "d", "alpha": ".4f", "beta2": ".5f", "steps": ".0f", "arrived by then": ".0%",
         "slowest arrival": "d", "widest excursion": ".2f"},
    )  # fmt: skip
    for bits in BITS:
        guide = guideline(bits)
        boundaries = np.array([critical(sigma, bits)[0] for sigma in OCTAVE] * 2)
        start = boundaries + np.repeat([-0.5, 1.5], len(OCTAVE))
        rule = adam(guide.alpha, beta2=guide.beta2)
        off = train(rule, bits, OCTAVE * 2, int(4 * guide.steps), start).log2_t - boundaries
        arrival = np.argmax((off > 0) & (off <= 1), axis=0)
        widest = float(np.ptp(off[int(2 * guide.steps) :], axis=0).max())
        there = float((arrival <= guide.steps).mean())
        steps = float(guide.steps)
        made.add(bits, guide.alpha, guide.beta2, steps, there, int(arrival.max()), widest)
    return made


def of_ratios() -> Table:
    """r_g over an octave of sigma, by p."""
    made = Table(
        "Ratios of gradients",
        {"b": "d", "p": "d", "least r_g": ".2g", "median": ".3g", "greatest": ".3g",
         "at most p": ".0%", "at most 10 p": ".0%"},
    )  # fmt: skip
    for bits in BITS:
        p = 2 ** (bits - 1) - 1
        r = np.array([critical(sigma, bits)[1] for sigma in OCTAVE])
        shares = (float((r <= limit).mean()) for limit in (p, 10 * p))
        made.add(bits, p, float(r.min()), float(np.median(r)), float(r.max()), *shares)
    return made


def main(json_file: JsonFile = None) -> None:
    """Print the tables of docs/tqt.md."""
    tables = (table() for table in (of_cycles, of_ratios, of_guidelines))
    report("benchmarks.figures.numbers", tables, json_file)


if __name__ == "__main__":
    typer.run(main)
