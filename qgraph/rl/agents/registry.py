"""The algorithms: one line for each, and how to get its config and its learner."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from qgraph.choices import chosen
from qgraph.errors import LoadError, UsageError
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.agents.declared_field import DeclaredField
from qgraph.rl.agents.former_names import renamed
from qgraph.rl.agents.setting import SettingValues
from qgraph.rl.setting_text import SettingText

if TYPE_CHECKING:
    from collections.abc import Callable

    from qgraph.rl.agents.learner import Learner
    from qgraph.rl.environments import Environment


@dataclass(frozen=True)
class Agent:
    """The classes of an algorithm, as `module:Class` in `qgraph.rl.agents`.

    The config is imported by the command line and by actors, the learner by a run only.
    """

    config: str
    learner: str


AGENTS: Mapping[str, Agent] = MappingProxyType(
    {
        "dqn": Agent("dqn.config:DqnConfig", "dqn.learner:DqnLearner"),
        "d4pg": Agent("d4pg.config:D4pgConfig", "d4pg.learner:D4pgLearner"),
        "sac": Agent("sac.config:SacConfig", "sac.learner:SacLearner"),
        "impala": Agent("impala.config:ImpalaConfig", "impala.learner:ImpalaLearner"),
        "td3": Agent("td3.config:Td3Config", "td3.learner:Td3Learner"),
        "ppo": Agent("ppo.config:PpoConfig", "ppo.learner:PpoLearner"),
    }
)


def config_class(algorithm: str) -> type[RunConfig]:
    """Look up the config class of an algorithm.

    Args:
        algorithm: Name of the algorithm, a key of `AGENTS`.

    Returns:
        The class.

    Raises:
        UsageError: The name is unknown.

    Examples:
        >>> from qgraph.rl.agents import AGENTS, config_class
        >>> [config_class(name).discrete_actions for name in AGENTS][:2]
        [True, False]
    """
    known = AGENTS[chosen(AGENTS, algorithm, "algorithm")]
    return cast("type[RunConfig]", _imported(known.config))


def config_classes() -> list[type[RunConfig]]:
    """The config classes of all algorithms, in the order of the registry."""
    return [config_class(name) for name in AGENTS]


def config_for(algorithm: str, environment: str, **settings: Any) -> RunConfig:
    """Create the config of an algorithm for a task.

    Args:
        algorithm: Name of the algorithm, a key of `AGENTS`.
        environment: Name of the environment.
        settings: Settings by name. Those that are None take their defaults.

    Returns:
        The config.

    Raises:
        UsageError: A setting is unknown, belongs to other algorithms, or is out of range.

    Examples:
        >>> from qgraph.rl.agents import AGENTS, config_for
        >>> config_for(next(iter(AGENTS)), "CartPole-v1", steps=20_000).steps
        20000
    """
    kind = config_class(algorithm)
    return kind.for_task(environment, **own_settings(kind, settings))


def own_settings(kind: type[RunConfig], given: SettingValues) -> SettingValues:
    """The settings that are not None, by their current names.

    A setting of other algorithms is left out if it has its default there or the value that is
    fixed here; otherwise it is refused, like an unknown one. Raises UsageError.
    """
    own_values = dict(renamed(kind, {name: v for name, v in given.items() if v is not None}))
    own = kind.fields()
    if "precision" in own_values:  # before settings of other algorithms for it
        kind.check_precision(own_values["precision"])
    for name in [name for name in own_values if name not in own]:
        owners = list(_owners(name))
        if not owners:
            raise _unknown(name)
        value = own_values.pop(name)
        today = owners[0][1].name
        allowed = [field.default for _, field in owners] + [getattr(kind, today, None)]
        if value not in allowed:
            users = ", ".join(dict.fromkeys(owner.algorithm for owner, _ in owners))
            raise UsageError(
                SettingText(f"{kind.algorithm} has no setting {{{today}}}"),
                hint=f"it is for {users}",
            )
    return own_values


def config_from_json(found: SettingValues) -> RunConfig:
    """The config that `RunConfig.as_json` wrote, in this version or an earlier one.

    Raises UsageError for values out of range, LoadError for settings that are unknown.
    """
    kind = config_class(str(found["algorithm"]))
    given = renamed(kind, {name: v for name, v in found.items() if name != "algorithm"})
    own = {"environment", *kind.fields()}
    for name in given:
        if name not in own and not any(_owners(name)):
            raise LoadError(f"unknown setting `{name}`", hint="a newer version of qgraph wrote it")
    return kind(**{name: value for name, value in given.items() if name in own})


def learner_for(config: RunConfig, environment: Environment) -> Learner:
    """A new learner, for an environment that fits (`check_fits`). Imports TensorFlow."""
    kind = cast(
        "Callable[[RunConfig, Environment], Learner]", _imported(AGENTS[config.algorithm].learner)
    )
    return kind(config, environment)


def check_fits(config: RunConfig, environment: Environment) -> None:
    """Raise UsageError if the algorithm cannot choose such actions or see such observations."""
    discrete, images = environment.actions.discrete, len(environment.shape) > 1
    if environment.actions.composite:
        raise UsageError(
            f"actions of `{config.environment}` are several choices, which no algorithm learns",
            hint="train with stable-baselines3, and quantize its policy (docs/rl.md)",
        )
    fitting = [kind for kind in config_classes() if _chooses(kind, discrete)]
    if type(config) not in fitting:
        raise UsageError(
            f"{config.algorithm} does not fit `{config.environment}`, whose actions are "
            + ("one of several" if discrete else "numbers"),
            hint=f"for such actions: {', '.join(kind.algorithm for kind in fitting)}",
        )
    if images and not config.images:
        users = [kind.algorithm for kind in fitting if kind.images]
        raise UsageError(
            f"{config.algorithm} does not learn from images, which `{config.environment}` returns",
            hint=f"for images and such actions: {', '.join(users)}",
        )
    config.check_observations(environment)


def _chooses(kind: type[RunConfig], discrete: bool) -> bool:
    """Whether an algorithm chooses discrete, or continuous, actions."""
    return kind.discrete_actions if discrete else kind.continuous_actions


def _imported(place: str) -> object:
    module, _, name = place.partition(":")
    kind: object = getattr(importlib.import_module(f"qgraph.rl.agents.{module}"), name)
    return kind


def _owners(name: str) -> Iterator[tuple[type[RunConfig], DeclaredField]]:
    """The algorithms that have or had a setting of this name."""
    for kind in config_classes():
        for field in kind.fields().values():
            if name in (field.name, field.setting.former_name):
                yield kind, field


def _unknown(name: str) -> UsageError:
    known = list(dict.fromkeys(each for kind in config_classes() for each in kind.fields()))
    near = difflib.get_close_matches(name, known, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(known)}"
    return UsageError(f"unknown setting `{name}`", hint=hint)
