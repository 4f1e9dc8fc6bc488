"""What learns: by which algorithm, and whether it fits the environment."""

from __future__ import annotations

from typing import Any, Protocol

from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram
from qgraph.rl.environments import Actions, Environment
from qgraph.rl.head import Head
from qgraph.rl.learn.options import Options
from qgraph.rl.learn.replay import Batch

DISCRETE = ("dqn", "impala")  # which choose one of several actions


class Learner(Protocol):
    """`state` is every variable by name, `policy` those of what actors run."""

    program: ActorProgram
    head: Head
    policy: dict[str, Any]

    @property
    def state(self) -> dict[str, Any]: ...

    def step(self, batch: Batch) -> tuple[Array, float]: ...


def check_fits(algorithm: str, environment: str, actions: Actions) -> None:
    """Raises UsageError where an algorithm cannot choose such actions."""
    if actions.discrete != (algorithm in DISCRETE):
        raise UsageError(
            f"{algorithm} does not fit `{environment}`, whose actions are "
            + ("one of several" if actions.discrete else "numbers"),
            hint="dqn and impala choose one of several; d4pg and sac choose numbers",
        )


def learner_of(options: Options, environment: Environment) -> Learner:
    """Raises UsageError for observations that the algorithm has no networks for."""
    if options.algorithm == "d4pg" and len(environment.shape) > 1:
        raise UsageError(
            f"d4pg has no critic for images, which `{options.environment}` gives",
            hint="sac learns numbers from images",
        )
    if options.algorithm == "dqn":
        from qgraph.rl.learn.dqn import Dqn

        return Dqn(options, environment)
    if options.algorithm == "sac":
        from qgraph.rl.learn.sac import Sac

        return Sac(options, environment)
    if options.algorithm == "impala":
        from qgraph.rl.learn.impala import Impala

        return Impala(options, environment)
    from qgraph.rl.learn.d4pg import D4pg

    return D4pg(options, environment)
