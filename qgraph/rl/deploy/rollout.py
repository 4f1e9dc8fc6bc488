"""A deployed policy acts in its environment, and each action is compared with Python's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.progress import Progress, silent
from qgraph.rl.actor.observations import wrong_shape
from qgraph.rl.deploy.deployment import Deployment
from qgraph.rl.deploy.example_process import ExampleProcess
from qgraph.rl.deploy.network_policy import NetworkPolicy
from qgraph.rl.policy import Policy
from qgraph.rl.policy.play import Returns, masks_of
from qgraph.rl.setting_text import SettingText


@dataclass(frozen=True)
class ActionDifference:
    """An action that differs.

    Attributes:
        episode: Number of the episode, from 0.
        step: Number of the step, from 0.
        in_c: The action in C; None if it refused the observation.
        in_python: The action in Python.

    Examples:
        >>> import numpy as np
        >>> from qgraph.rl.deploy import ActionDifference
        >>> ActionDifference(0, 7, None, np.array(1)).step
        7
    """

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

    Examples:
        >>> import numpy as np
        >>> from qgraph.rl.deploy import Rollout
        >>> from qgraph.rl.policy.play import Returns
        >>> played = Returns(np.array([200.0]), np.array([200]))
        >>> Rollout("CartPole-v1", 0, played, played, 0, None).equal
        True
    """

    environment: str
    first_seed: int
    in_c: Returns
    in_python: Returns
    different: int
    first: ActionDifference | None

    @property
    def compared(self) -> int:
        """The number of actions that were compared: one for each step."""
        return int(self.in_c.steps.sum())

    @property
    def equal(self) -> bool:
        """True if no action differs."""
        return self.different == 0

    @property
    def reproducible(self) -> bool:
        """False if no action differs, but returns do: the environment itself differs."""
        return not self.equal or bool(np.array_equal(self.in_c.each, self.in_python.each))


def roll_out(
    policy: Policy | NetworkPolicy,
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

    Examples:
        >>> from qgraph.rl.deploy import deploy, roll_out
        >>> from qgraph.rl.policy import load_policy
        >>> policy = load_policy("static.qpol")
        >>> roll_out(policy, deploy(policy, "device"), "CartPole-v1", episodes=1).different
        0
    """
    from qgraph.rl.environments import make

    head = policy.head
    if head is None:
        raise UsageError(
            "the policy has no head, so its outputs are not actions",
            hint=SettingText("quantize it with {head}"),
        )
    facts = deployment.facts
    if facts is None:
        raise UsageError("only a policy in C acts in an environment", node=str(deployment.folder))
    seeds = range(first_seed, first_seed + episodes)
    world = make(environment)
    try:
        if tuple(world.shape) != policy.shape:
            raise wrong_shape(tuple(world.shape), policy.shape, environment)
        world.actions.check(head, facts.outputs)
    finally:
        world.close()
    with ExampleProcess(deployment.folder, facts) as example:
        pair = _Pair(policy, example)
        in_c = _play(environment, pair, seeds, progress, "acting in C")
    in_python = _play(environment, _Alone(policy), seeds, progress, "acting in Python")
    return Rollout(environment, first_seed, in_c, in_python, pair.different, pair.first)


class _Alone:
    """The policy in Python."""

    def __init__(self, policy: Policy | NetworkPolicy) -> None:
        self.policy = policy

    def begin(self, episode: int) -> None:
        self.policy.reset()

    def act(self, seen: Array, mask: Array | None) -> Array:
        return self.policy(seen, masks=mask)


class _Pair(_Alone):
    """The policy in C, whose actions are compared with those of the policy in Python."""

    def __init__(self, policy: Policy | NetworkPolicy, example: ExampleProcess) -> None:
        super().__init__(policy)
        self.different = 0
        self.first: ActionDifference | None = None
        self._example, self._episode, self._step = example, 0, 0

    def begin(self, episode: int) -> None:
        super().begin(episode)
        self._example.restart()
        self._episode, self._step = episode, 0

    def act(self, seen: Array, mask: Array | None) -> Array:
        wanted, found = super().act(seen, mask), self._example.action(seen, mask)
        if found is None or found.tobytes() != wanted.tobytes():
            self.different += 1
            here = ActionDifference(self._episode, self._step, found, wanted)
            self.first = self.first or here
        self._step += 1
        return wanted if found is None else found


def _play(
    environment: str, actor: _Alone, seeds: Sequence[int], progress: Progress, stage: str
) -> Returns:
    """One episode from each seed.

    Each has a new environment: some, such as those of Box2D, keep more than a reset restores.
    """
    from qgraph.rl.environments import make

    returns, steps = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
    head = actor.policy.head
    for episode, seed in enumerate(seeds):
        progress(stage, episode, len(seeds))
        actor.begin(episode)
        world = make(environment)
        try:
            seen, over = world.reset(seed), False
            while not over:
                masks = None if head is None else masks_of([world], head)
                mask = None if masks is None else masks[0]
                outcome = world.step(actor.act(np.asarray(seen, np.float32), mask))
                returns[episode] += outcome.reward
                steps[episode] += 1
                seen, over = outcome.observation, outcome.over
        finally:
            world.close()
    return Returns(returns, steps)
