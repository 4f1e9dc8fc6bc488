"""Status of a run while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """Result of a validation after `step` steps, in epoch `epoch` (from 0).

    `accuracy`: share of samples with the class of the labels or, without labels, of the float
    network; None if the output is not classes. `frozen`: number of frozen thresholds.
    """

    step: int
    epoch: int
    loss: float
    accuracy: float | None
    frozen: int

    def beats(self, other: Score | None) -> bool:
        """Whether this score is better than an earlier one: by accuracy, then by loss."""
        if other is None:
            return True
        return (self.accuracy or 0.0, -self.loss) > (other.accuracy or 0.0, -other.loss)


@dataclass(frozen=True)
class TrainingStatus:
    """Progress of a run: `done` of `steps` steps in `epoch` (from 0); None where unknown.

    `loss` and `accuracy` are means over the epoch so far.
    """

    epoch: int
    epochs: int
    done: int
    steps: int | None
    loss: float
    accuracy: float | None
    frozen: int
    thresholds: int
    best: Score | None


Watch = Callable[[TrainingStatus], None]
