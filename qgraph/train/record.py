"""Progress of a run in its checkpoint: steps done, and results of validations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qgraph.train.options import Options
from qgraph.train.score import Score


@dataclass(frozen=True)
class Position:
    """Position of a run: `step` steps in all, `done` of them in `epoch` (from 0).

    `loss` and `right` are sums over the `samples` of these steps.
    """

    step: int = 0
    epoch: int = 0
    done: int = 0
    loss: float = 0.0
    right: float = 0.0
    samples: int = 0


@dataclass(frozen=True)
class TrainingRecord:
    """Options, position and scores of a run; all None if a script trained, without a record.

    kind: name of the kind of quantizers. integers: whether such networks end in integers.
    """

    options: Options | None = None
    loss: str | None = None
    at: Position | None = None
    history: Sequence[Score] | None = None
    best: Score | None = None
    kind: str = "tqt"
    integers: bool = True
