"""V-trace, importance sampling, Retrace and tree backup.

`reference.py` has the same as the sums of the papers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qgraph.errors import UsageError
from qgraph.foreign import Namespace, Tensor
from qgraph.rl.correct.trajectories import Trajectories

TARGETS, WEIGHTS = "targets", "weights"


@dataclass(frozen=True)
class VTrace:
    """Targets of V (Espeholt et al., 2018; equation 2 of AcceRL).

    rho: the limit of ratios in errors. It sets the policy whose value is learnt: min(rho mu, pi),
    normalised, which is pi for infinity and near mu for a small rho. c: the limit of ratios in
    traces, at most rho; it sets the speed of learning.
    """

    corrects: ClassVar[str] = TARGETS
    of_actions: ClassVar[bool] = False

    rho: float = 1.0
    c: float = 1.0

    def __post_init__(self) -> None:
        _above_zero(self, "rho", "c")
        if self.c > self.rho:
            raise UsageError(
                f"vtrace: c is {self.c:g}, above rho, {self.rho:g}",
                hint="use a rho of at least c; otherwise it may not converge",
            )

    def __call__(self, steps: Trajectories, xp: Namespace) -> Tensor:
        ratios = steps.ratios(xp)
        errors = xp.minimum(ratios, self.rho) * steps.errors(steps.values)
        return steps.values + steps.summed(errors, xp.minimum(ratios, self.c), xp)


@dataclass(frozen=True)
class ImportanceSampling:
    """Weights of the policy's gradient (equation 3 of AcceRL): ratios, limited by rho."""

    corrects: ClassVar[str] = WEIGHTS
    of_actions: ClassVar[bool] = False

    rho: float = 1.0

    def __post_init__(self) -> None:
        _above_zero(self, "rho")

    def __call__(self, steps: Trajectories, xp: Namespace) -> Tensor:
        return xp.minimum(steps.ratios(xp), self.rho)


@dataclass(frozen=True)
class Retrace:
    """Targets of Q (Munos et al., 2016), of pi for any mu.

    lambda_: from 0 (one step) to 1. c: the limit of ratios in traces; above 1 they vary more.
    """

    corrects: ClassVar[str] = TARGETS
    of_actions: ClassVar[bool] = True

    lambda_: float = 1.0
    c: float = 1.0

    def __post_init__(self) -> None:
        _share(self, self.lambda_)
        _above_zero(self, "c")

    def __call__(self, steps: Trajectories, xp: Namespace) -> Tensor:
        traces = self.lambda_ * xp.minimum(steps.ratios(xp), self.c)
        return steps.q + steps.summed(steps.errors(steps.q), _later(traces, xp), xp)


@dataclass(frozen=True)
class TreeBackup:
    """Targets of Q (Precup et al., 2000): traces are lambda pi(a|x), so mu is not needed."""

    corrects: ClassVar[str] = TARGETS
    of_actions: ClassVar[bool] = True

    lambda_: float = 1.0

    def __post_init__(self) -> None:
        _share(self, self.lambda_)

    def __call__(self, steps: Trajectories, xp: Namespace) -> Tensor:
        traces = self.lambda_ * xp.exp(steps.log_pi)
        return steps.q + steps.summed(steps.errors(steps.q), _later(traces, xp), xp)


NAMES = {"vtrace": VTrace, "is": ImportanceSampling, "retrace": Retrace, "tree_backup": TreeBackup}


def name_of(corrector: object) -> str:
    """The name of a corrector in texts."""
    kind = type(corrector)
    own = f"{kind.__module__}.{kind.__qualname__}"
    return next((name for name, known in NAMES.items() if known is kind), own)


def _later(traces: Tensor, xp: Namespace) -> Tensor:
    """Traces one row later: the first action is given, so only later ones are weighted.

    The last row stays, and does not count.
    """
    last = traces.shape[0] - 1
    return xp.stack([traces[min(t + 1, last)] for t in range(last + 1)])


def _above_zero(corrector: object, *names: str) -> None:
    for name in names:
        value = getattr(corrector, name)
        if not value > 0:
            raise UsageError(
                f"{name_of(corrector)}: {name} is {value:g}, but has to be above 0",
                hint="1, or inf for no limit",
            )


def _share(corrector: object, value: float) -> None:
    if not 0 <= value <= 1:
        raise UsageError(f"{name_of(corrector)}: lambda is {value:g}, but has to be in 0..1")
