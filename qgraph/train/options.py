"""Options of training. The defaults are those of TQT (docs/numerics.md, 6)."""

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
    """Options of a run. Two runs with the same options and data give the same bits.

    Attributes:
        epochs: Passes over the training data.
        batch_size: Samples in a training step.
        learn: Parameters to train: `all`, `weights` or `thresholds`.
        loss: `labels`, `teacher` (the float network), `mse` or `blocks` (the float network's values
            between blocks). None means `labels` if the data has labels, otherwise `teacher` for an
            output of classes and `mse` for others.
        output: The output to train; None if the network has only one, or with `blocks` for all.
        weight_rate: Learning rate of weights. It is multiplied by 0.94 every 3000 steps.
        step_rate: Learning rate of weights in steps of their scales, instead of `weight_rate`, with
            the same schedule. All layers then change equally many codes. None uses `weight_rate`.
        threshold_rate: Learning rate of thresholds. It is halved every 1000 steps. Steps of
            schedules are for batches of 24 samples, and are scaled for other batches.
        weight_decay: Factor of the L2 penalty on weights.
        anneal_steps: Steps over which the learning rate of weights also falls to 0.05 of its value,
            along a cosine. None disables this.
        norm_epochs: Epochs in which batch norms use the statistics of the batch. After that they
            use running statistics.
        norm_momentum: Momentum of the running statistics, below 1.
        freeze_start: First step at which a threshold is frozen; None means 1000, scaled for the
            batch size.
        freeze_every: Steps between two thresholds that are frozen.
        validate_every: Steps between two validations; None validates at the end of each epoch.
        seed: Seed that shuffles the samples.

    Raises:
        UsageError: A value is out of its range.

    Examples:
        >>> from qgraph.train.options import Options
        >>> Options(epochs=2, weight_rate=1e-4).batch_size
        32
    """

    epochs: int = 5
    batch_size: int = 32
    learn: Learning = Learning.ALL
    loss: LossKind | None = None
    output: str | None = None
    weight_rate: float = 1e-6
    step_rate: float | None = None
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
        """Convert steps of the paper, whose batches have 24 samples, to batches of this size.

        Args:
            steps: Steps with 24 samples each.

        Returns:
            The number of steps with the same number of samples, at least 1.

        Examples:
            >>> from qgraph.train.options import Options
            >>> Options(batch_size=48).steps_for(1000)
            500
        """
        return max(round(steps * PAPER_BATCH / self.batch_size), 1)

    def freeze_schedule(self) -> FreezeSchedule:
        """The schedule of freezing.

        Returns:
            The schedule, with its first step and the steps between two thresholds.

        Examples:
            >>> from qgraph.train.options import Options
            >>> Options().freeze_schedule().start
            750
        """
        start = self.steps_for(1000) if self.freeze_start is None else self.freeze_start
        return FreezeSchedule(start, self.freeze_every)
