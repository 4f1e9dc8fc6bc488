"""How often what is inserted is sampled: bounded from both sides, and never stuck."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.errors import UsageError


@dataclass
class RateLimiter:
    """Keeps samples near `ratio` times inserts (samples per insert), once `least` are in.

    `ahead` = ratio * inserts - samples is what may still be sampled. It stays within 0..2 * slack
    (counted from `least` on): below, the learner waits; above, actors wait. Since the slack is at
    least one insert or one batch, whichever counts more, one of both is always allowed.
    """

    ratio: float
    least: int
    batch: int
    slack: float = 0.0
    inserts: int = 0
    samples: int = 0
    before: int = 0  # samples that do not count: of a replay that is gone

    def __post_init__(self) -> None:
        if self.ratio <= 0 or self.least < 1 or self.batch < 1:
            raise UsageError(
                f"samples per insert {self.ratio}, least {self.least}, batch {self.batch}: "
                "all have to be above 0"
            )
        self.slack = max(self.slack, self.ratio, float(self.batch))

    @property
    def ahead(self) -> float:
        """Samples that inserts so far allow, less those taken."""
        return self.ratio * (self.inserts - self.least) + self.slack - (self.samples - self.before)

    def may_insert(self) -> int:
        """How many inserts are allowed now; 0: sample first."""
        if self.inserts < self.least:
            return self.least - self.inserts
        return max(0, int((2 * self.slack - self.ahead) / self.ratio))

    def may_sample(self) -> bool:
        """True if a batch is allowed now; if not, insert first."""
        return self.inserts >= self.least and self.ahead >= self.batch

    def insert(self, count: int) -> None:
        self.inserts += count

    def sample(self) -> None:
        self.samples += self.batch

    def begin_anew(self, least: int) -> None:
        """The replay is empty again: `least` inserts from here on, before the next sample."""
        self.least = self.inserts + least
        self.before = self.samples

    def state(self) -> list[int]:
        """The argument of `restore`."""
        return [self.inserts, self.samples, self.least, self.before]

    def restore(self, state: list[int]) -> None:
        self.inserts, self.samples, self.least, self.before = state
