"""Environments by name: `CartPole-v1`, `dm_control:cartpole-balance`, `ALE/Pong-v5`.

All have one interface. Observations are arrays of one shape; a dictionary of observations becomes
one flat array. An action is a number from 0 to `count` - 1, or an array within its bounds.
"""

from __future__ import annotations

from qgraph.rl.environments.atari import ATARI, Atari
from qgraph.rl.environments.dm_control import DM_CONTROL, PIXELS, DmControl, DmControlPixels
from qgraph.rl.environments.environment import Actions, Environment, Outcome
from qgraph.rl.environments.gymnasium import Gymnasium
from qgraph.rl.environments.separate_process import SeparateEnvironment

__all__ = ["ATARI", "Actions", "Environment", "Outcome", "make"]


def make(name: str) -> Environment:
    """Create an environment.

    Args:
        name: A name of gymnasium, `dm_control:DOMAIN-TASK`, or `module:name` as in gymnasium.

    Returns:
        The environment.

    Raises:
        UsageError: The environment is unknown, or a package that it needs is missing.

    Examples:
        >>> from qgraph.rl.environments import make
        >>> environment = make("CartPole-v1")
        >>> environment.shape, environment.actions.count
        ((4,), 2)
        >>> environment.reset(seed=1).dtype
        dtype('float32')
        >>> environment.step(0).reward
        1.0
    """
    if name.startswith(DM_CONTROL) and name.endswith(PIXELS):
        return SeparateEnvironment(name)
    return make_in_process(name)


def make_in_process(name: str) -> Environment:
    """Create an environment in this process, also one for which `make` starts another process."""
    if name.startswith(DM_CONTROL):
        return DmControlPixels(name) if name.endswith(PIXELS) else DmControl(name)
    if name.startswith(ATARI):
        return Atari(name)
    return Gymnasium(name)
