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
    """Targets of V (Espeholt et al., 2018; AcceRL, equation 2).

    Attributes:
        rho: Limit of ratios in errors. It sets the policy whose value is learned: min(rho mu, pi),
            normalized. This is pi for infinity, and close to mu for a small rho.
        c: Limit of ratios in traces, at most rho. It sets the speed of learning.

    Raises:
        UsageError: A limit is not above 0, or c is above rho.

    Examples:
        >>> from qgraph.rl.correct import VTrace
        >>> VTrace(c=0.9)
        VTrace(rho=1.0, c=0.9)
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
    """Weights of the policy's gradient (AcceRL, equation 3): ratios pi / mu, limited by rho.

    Attributes:
        rho: Limit of the ratios.

    Raises:
        UsageError: rho is not above 0.

    Examples:
        >>> from qgraph.rl.correct import ImportanceSampling
        >>> ImportanceSampling(rho=2.0)
        ImportanceSampling(rho=2.0)
    """

    corrects: ClassVar[str] = WEIGHTS
    of_actions: ClassVar[bool] = False

    rho: float = 1.0

    def __post_init__(self) -> None:
        _above_zero(self, "rho")

    def __call__(self, steps: Trajectories, xp: Namespace) -> Tensor:
        return xp.minimum(steps.ratios(xp), self.rho)


@dataclass(frozen=True)
class Retrace:
    """Targets of Q (Munos et al., 2016), with traces lambda min(ratio, c).

    Attributes:
        lambda_: Factor of traces, 0 to 1.
        c: Limit of ratios in traces.

    Raises:
        UsageError: A constant is out of range.

    Examples:
        >>> from qgraph.rl.correct import Retrace
        >>> Retrace(lambda_=0.95).of_actions
        True
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
    """Targets of Q (Precup et al., 2000), with traces lambda pi(a|x). It does not need mu.

    Attributes:
        lambda_: Factor of traces, 0 to 1.

    Raises:
        UsageError: lambda is not in 0..1.

    Examples:
        >>> from qgraph.rl.correct import TreeBackup
        >>> TreeBackup(lambda_=0.9).corrects
        'targets'
    """

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
                f"{name_of(corrector)}: {name} is {value:g}, but must be above 0",
                hint="1, or inf for no limit",
            )


def _share(corrector: object, value: float) -> None:
    if not 0 <= value <= 1:
        raise UsageError(f"{name_of(corrector)}: lambda is {value:g}, but must be in 0..1")
