"""Split samples into parts, so that choices are made on one part and reported on another.

Thresholds and corrections come from the first part, plans are compared on the second, and the
report is measured on the third.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.samples.data import at_least, batch_of

# The largest number of samples to compare plans on, and for the report; more if they are small.
COMPARED, COMPARED_NUMBERS = 64, 1 << 16
MIN_SAMPLES = 8  # fewer samples than this are not split

Data = Mapping[str, Array]


@dataclass(frozen=True)
class Split:
    """Samples for calibration, for comparing plans, and for the report; they may be the same.

    `learning` is all except the report's samples, for the final build.
    """

    calibration: Data
    comparison: Data
    report: Data
    learning: Data
    held_out: bool

    def exchanged(self, graph: Graph) -> Split | None:
        """Exchange samples of calibration with those that plans were compared on.

        A comparison then uses samples that no choice depended on, up to half of `calibration`.
        None if the parts are the same samples, or `calibration` is too small to split.
        """
        count, step = samples_of(self.calibration), batch_of(graph)
        held = at_least(self.calibration, COMPARED, COMPARED_NUMBERS)
        held = min(held, count // 2) // step * step
        if not self.held_out or not held:
            return None
        fresh = {name: array[:held] for name, array in self.calibration.items()}
        rest = {
            name: np.concatenate([array[held:], self.comparison[name]])
            for name, array in self.calibration.items()
        }
        return replace(self, calibration=rest, comparison=fresh)


def samples_of(data: Data) -> int:
    return len(next(iter(data.values()), ()))


def undivided(graph: Graph, data: Data) -> Split:
    """Calibration on all samples; comparison and report on the first of them."""
    compared = first_samples(graph, data, at_least(data, COMPARED, COMPARED_NUMBERS))
    return Split(data, compared, compared, data, held_out=False)


def first_samples(graph: Graph, data: Data, most: int) -> Data:
    """The first `most` samples, or one whole batch."""
    count = max(most // (step := batch_of(graph)), 1) * step
    return {name: array[:count] for name, array in data.items()}


def split(graph: Graph, data: Data) -> Split:
    """Three parts without common samples, or the same samples three times if there are few."""
    count, step = samples_of(data), batch_of(graph)
    held = min(at_least(data, COMPARED, COMPARED_NUMBERS), count // 4) // step * step
    if count < MIN_SAMPLES or not held:
        return undivided(graph, data)

    def part(start: int, stop: int | None) -> Data:
        return {name: array[start:stop] for name, array in data.items()}

    calibration, learning = part(0, count - 2 * held), part(0, count - held)
    return Split(calibration, part(-2 * held, -held), part(-held, None), learning, held_out=True)
