"""How a network is trained, as a value; the defaults are those of TQT (docs/numerics.md, 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from qgraph.choices import Learning, LossKind, chosen, optional
from qgraph.errors import UsageError
from qgraph.train.freezing import FreezeSchedule

ANNEALED = 0.05
PAPER_BATCH = 24  # steps of the schedules are for this batch size


@dataclass(frozen=True)
class Options:
    """Options of a run; two runs of the same options and data end with the same bits.

    `learn`: `all`, or `weights` or `thresholds` alone. Rates fall by halves (thresholds) and by
    0.94 (weights); with `anneal_steps` that of weights falls along half a cosine as well, to
    `ANNEALED` of it after so many steps. `norm_epochs`: batch norms use the statistics of batches
    for so many epochs, then those that they have gathered. From step `freeze_start` on (without:
    1000 at a batch of 24, and as many samples at others), every `freeze_every` steps, one threshold
    is frozen.
    `validate_every`: steps; without, once an epoch. `loss`, `output`: see `loss_for`.

    Raises UsageError for what makes no sense.
    """

    epochs: int = 5
    batch_size: int = 32
    learn: Learning = Learning.ALL
    loss: LossKind | None = None
    output: str | None = None
    weight_rate: float = 1e-6
    threshold_rate: float = 1e-2
    weight_decay: float = 0.0
    anneal_steps: int | None = None
    norm_epochs: float = 1.0
    norm_momentum: float = 0.99
    freeze_start: int | None = None
    freeze_every: int = 50
    validate_every: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
                raise UsageError(f"{option.name} cannot be {value}")
        for name in ("epochs", "batch_size", "freeze_every", "validate_every", "anneal_steps"):
            if getattr(self, name) == 0:
                raise UsageError(f"{name} cannot be 0")
        object.__setattr__(self, "learn", chosen(Learning, self.learn, "part to learn"))
        object.__setattr__(self, "loss", optional(LossKind, self.loss, "loss"))
        if self.norm_momentum >= 1:
            raise UsageError("norm_momentum must be below 1")

    def steps_for(self, steps: int) -> int:
        """`steps` of the paper's batches, in batches of this size."""
        return max(round(steps * PAPER_BATCH / self.batch_size), 1)

    def freeze_schedule(self) -> FreezeSchedule:
        """When thresholds are frozen."""
        start = self.steps_for(1000) if self.freeze_start is None else self.freeze_start
        return FreezeSchedule(start, self.freeze_every)
