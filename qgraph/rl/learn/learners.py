"""What learns: by which algorithm, and whether it fits the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram
from qgraph.rl.compress.form import PolicySpec
from qgraph.rl.compress.settings import Settings
from qgraph.rl.environments import Environment
from qgraph.rl.head import Head
from qgraph.rl.learn.options import Options
from qgraph.rl.learn.replay import Batch

DISCRETE = ("dqn", "impala")  # which choose one of several actions
SAC_IMAGES = 15  # pixels that its four convolutions need


@dataclass(frozen=True)
class Taught:
    """What students learn from: a policy, and its learner's values of states beside it.

    weights     variables, by name
    """

    spec: PolicySpec
    weights: Mapping[str, Any]


class Learner(Protocol):
    """`state` is every variable by name, `policy` those of what actors run.

    `taught` is None of one that has no values V(x) on the policy's torso.
    """

    program: ActorProgram
    head: Head
    policy: dict[str, Any]

    @property
    def taught(self) -> Taught | None: ...

    @property
    def state(self) -> dict[str, Any]: ...

    def step(self, batch: Batch) -> tuple[Array, float]: ...


def taught_by(learner: Learner, compression: Settings | None) -> Taught:
    """What a compressor gets of a learner: values too, where a student learns them."""
    if compression is not None and compression.teaches_values and learner.taught is not None:
        return learner.taught
    return Taught(PolicySpec(learner.program, learner.head), learner.policy)


def check_fits(algorithm: str, name: str, environment: Environment) -> None:
    """Raises UsageError where an algorithm cannot choose such actions, or see such observations."""
    actions, shape = environment.actions, environment.shape
    if actions.discrete != (algorithm in DISCRETE):
        raise UsageError(
            f"{algorithm} does not fit `{name}`, whose actions are "
            + ("one of several" if actions.discrete else "numbers"),
            hint="dqn and impala choose one of several; d4pg and sac choose numbers",
        )
    if algorithm == "d4pg" and len(shape) > 1:
        raise UsageError(
            f"d4pg has no critic for images, which `{name}` gives",
            hint="sac learns numbers from images",
        )
    images = len(shape) == 3 and min(shape[:2]) >= SAC_IMAGES
    if algorithm == "sac" and not (len(shape) == 1 or images):
        raise UsageError(
            f"sac takes vectors, or images of {SAC_IMAGES} x {SAC_IMAGES} and more with channels; "
            f"`{name}` gives {list(shape)}"
        )


def learner_of(options: Options, environment: Environment) -> Learner:
    """One that fits the environment (`check_fits`)."""
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
