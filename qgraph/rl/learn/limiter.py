"""The ratio of samples to inserts, bounded from both sides without a deadlock."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.errors import UsageError


@dataclass
class RateLimiter:
    """Keeps samples near `ratio` times inserts, after the first `min_inserts` inserts.

    `ahead` = ratio * inserts - samples is the number of samples still allowed. It stays within
    0..2 * slack (counted from `min_inserts` on): below, the learner waits; above, actors wait. The
    slack is at least one insert and one batch, so one of both is always allowed.
    """

    ratio: float
    min_inserts: int
    batch: int
    slack: float = 0.0
    inserts: int = 0
    samples: int = 0
    before: int = 0  # samples that do not count, of a lost replay

    def __post_init__(self) -> None:
        if self.ratio <= 0 or self.min_inserts < 1 or self.batch < 1:
            raise UsageError(
                f"samples per insert {self.ratio}, first inserts {self.min_inserts}, "
                f"batch {self.batch}: all must be above 0"
            )
        self.slack = max(self.slack, self.ratio, float(self.batch))

    @property
    def ahead(self) -> float:
        """The samples that inserts allow, minus those taken."""
        allowed = self.ratio * (self.inserts - self.min_inserts) + self.slack
        return allowed - (self.samples - self.before)

    def may_insert(self) -> int:
        """The number of inserts allowed now; 0 if a sample must come first."""
        if self.inserts < self.min_inserts:
            return self.min_inserts - self.inserts
        return max(0, int((2 * self.slack - self.ahead) / self.ratio))

    def may_sample(self) -> bool:
        """Whether a batch is allowed now."""
        return self.inserts >= self.min_inserts and self.ahead >= self.batch

    def insert(self, count: int) -> None:
        self.inserts += count

    def sample(self) -> None:
        self.samples += self.batch

    def restart(self, min_inserts: int) -> None:
        """Begin with an empty replay: the next sample needs `min_inserts` more inserts."""
        self.min_inserts = self.inserts + min_inserts
        self.before = self.samples

    def state(self) -> list[int]:
        """The state that `restore` takes."""
        return [self.inserts, self.samples, self.min_inserts, self.before]

    def restore(self, state: list[int]) -> None:
        self.inserts, self.samples, self.min_inserts, self.before = state


class TakingTurns(RateLimiter):
    """Actors and learner take turns, a batch each: no step is ahead of the learner.

    The ratio is 1 and `min_inserts` is the batch.
    """

    def may_insert(self) -> int:
        if self.inserts < self.min_inserts:
            return self.min_inserts - self.inserts
        return max(0, int(self.batch - self.ahead))
