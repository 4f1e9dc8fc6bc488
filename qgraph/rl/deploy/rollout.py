"""A deployed policy acts in its environment, and each action is compared with Python's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.progress import Progress, silent
from qgraph.rl.actor.observations import wrong_shape
from qgraph.rl.deploy.deployment import Deployment
from qgraph.rl.deploy.example_process import ExampleProcess
from qgraph.rl.policy import Policy
from qgraph.rl.policy.play import Returns, play
from qgraph.rl.setting_text import SettingText


@dataclass(frozen=True)
class Difference:
    """An action that differs: where, and both actions. None in C: it refused the observation."""

    episode: int
    step: int
    in_c: Array | None
    in_python: Array


@dataclass(frozen=True)
class Rollout:
    """Episodes in which the C program acted.

    Attributes:
        environment: Name of the environment.
        first_seed: Seed of the first episode; later episodes have the following ones.
        in_c: Returns of the episodes in which C acted.
        in_python: Returns of the policy in Python, on the same seeds.
        different: Number of actions that differ from Python's for the same observation.
        first: The first of them.
    """

    environment: str
    first_seed: int
    in_c: Returns
    in_python: Returns
    different: int
    first: Difference | None

    @property
    def compared(self) -> int:
        """The number of actions that were compared: one for each step."""
        return int(self.in_c.steps.sum())

    @property
    def equal(self) -> bool:
        """True if no action differs, and all returns are equal."""
        return self.different == 0 and bool(np.array_equal(self.in_c.each, self.in_python.each))


def roll_out(
    policy: Policy,
    deployment: Deployment,
    environment: str,
    *,
    episodes: int = 10,
    first_seed: int = 0,
    progress: Progress = silent,
) -> Rollout:
    """Compile a deployed policy and let it act.

    The actions of the C program are taken in the environment. For each observation, the policy in
    Python chooses an action too, and both are compared bit for bit. Then the policy in Python plays
    the same seeds alone.

    Args:
        policy: The policy that was deployed.
        deployment: What `deploy` returned.
        environment: Name of the environment.
        episodes: Number of episodes.
        first_seed: Seed of the first episode; later episodes have the following ones.
        progress: Called with the stage, how much is done, and how much there is.

    Returns:
        Returns of both, and the number of actions that differ.

    Raises:
        UsageError: The environment is unknown, or does not fit the policy.
        UnsupportedError: There is no C compiler.
        ExactnessError: The files do not compile.
        RunError: The compiled program ended.
    """
    from qgraph.rl.environments import make

    head = policy.head
    if head is None:
        raise UsageError(
            "the policy has no head, so its outputs are not actions",
            hint=SettingText("quantize it with {head}"),
        )
    seeds = range(first_seed, first_seed + episodes)
    returns, steps = np.zeros(episodes), np.zeros(episodes, np.int64)
    different, first = 0, None
    world = make(environment)
    try:
        if tuple(world.shape) != policy.shape:
            raise wrong_shape(tuple(world.shape), policy.shape, environment)
        world.actions.check(head, deployment.facts.outputs)
        with ExampleProcess(deployment.folder, deployment.facts) as example:
            for episode, seed in enumerate(seeds):
                progress("acting in C", episode, episodes)
                seen, over = world.reset(seed), False
                while not over:
                    seen = np.asarray(seen, np.float32)
                    wanted = policy(seen)
                    found = example.action(seen)
                    if found is None or found.tobytes() != wanted.tobytes():
                        different += 1
                        here = Difference(episode, int(steps[episode]), found, wanted)
                        first = first or here
                    outcome = world.step(wanted if found is None else found)
                    returns[episode] += outcome.reward
                    steps[episode] += 1
                    seen, over = outcome.observation, outcome.over
    finally:
        world.close()
    alone = play(environment, policy.outputs, head, seeds, progress, "acting in Python")
    return Rollout(environment, first_seed, Returns(returns, steps), alone, different, first)
