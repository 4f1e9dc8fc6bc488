"""The status of a run, and the counts that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qgraph.rl.learn.sources import PARTS


@dataclass(frozen=True)
class Status:
    """The status of a run: a row of progress.csv."""

    learner_steps: int
    actor_steps: int
    episodes: int
    seconds: float  # without evaluations
    return_mean: float  # of the full-precision policy, without exploration
    return_error: float
    actors_return: float  # of their newest episodes, with exploration
    loss: float
    samples_per_insert: float
    staleness: float  # mean learner steps that acting policies were behind
    learner_waiting: float  # share of its time that the learner waited for transitions
    actors_waiting: float  # share of their time that actors waited for space


@dataclass
class Counts:
    """The counts that a checkpoint keeps; seconds without evaluations."""

    learner_steps: int = 0
    episodes: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    best: float | None = None  # return of an evaluation


STATUS_COLUMNS = tuple(Status.__dataclass_fields__)
BREAKDOWN_COLUMNS = ("actor_steps", "actor", *PARTS)
EPISODE_COLUMNS = ("actor_steps", "actor", "returned", "length", "version", "seconds")
Watch = Callable[[Status], None]
