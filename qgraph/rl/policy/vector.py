"""Acting in vector environments: one call of the policy for all environments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.errors import UsageError
from qgraph.foreign import GymObject
from qgraph.ir.types import Array
from qgraph.rl.environments.flat_spaces import flat_space
from qgraph.rl.policy.policy import Policy

MASK = "action_mask"  # the name of masks in the infos of environments


@dataclass(frozen=True)
class VectorSteps:
    """Steps of environments side by side, each array [steps, n, ...].

    Attributes:
        observations: What the policy saw.
        actions: Its actions.
        rewards: The rewards.
        terminated: Whether the task ended in this step.
        truncated: Whether the episode was cut off in this step.
        counted: False for steps that only begin an episode: many vector environments ignore the
            action behind the end of an episode, and reset instead.
        returns: The returns of the episodes that ended, in order.

    Examples:
        >>> import gymnasium
        >>> from qgraph.rl.policy import VectorCollector, load_policy
        >>> environments = gymnasium.make_vec("CartPole-v1", 2)
        >>> steps = VectorCollector(environments, load_policy("policy.qpol")).collect(3)
        >>> steps.observations.shape, steps.actions.shape
        ((3, 2, 4), (3, 2))
    """

    observations: Array
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    counted: Array
    returns: tuple[float, ...]


class VectorCollector:
    """Collects steps with a policy in vector environments, such as gymnasium's and EnvPool's.

    States of a recurrent policy begin again with each episode. Episodes continue from one call of
    `collect` to the next.

    Args:
        environments: Environments with the interface of `gymnasium.vector.VectorEnv`.
        policy: The policy.
        rng: Draws actions; None takes the most likely ones.
        seed: The seed of the environments; None chooses one.

    Raises:
        UsageError: The policy has no head, or its actions do not fit the environments.

    Examples:
        >>> import gymnasium
        >>> from qgraph.rl.policy import VectorCollector, load_policy
        >>> environments = gymnasium.make_vec("CartPole-v1", 8)
        >>> collector = VectorCollector(environments, load_policy("policy.qpol"), seed=0)
        >>> collector.collect(16).rewards.shape
        (16, 8)
    """

    def __init__(
        self,
        environments: GymObject,
        policy: Policy,
        rng: np.random.Generator | None = None,
        seed: int | None = None,
    ) -> None:
        self.environments, self.policy, self.rng = environments, policy, rng
        self.count = int(environments.num_envs)
        self._space = environments.single_action_space
        _check_actions(policy, self._space)
        try:
            self._flat = flat_space(environments.single_observation_space)
        except ValueError as error:
            raise UsageError(
                f"the environments give observations that do not fit: {error}"
            ) from None
        mode = getattr(environments, "metadata", {}).get("autoreset_mode")
        self._mode = str(getattr(mode, "value", mode or "NextStep"))
        self._seen, self._infos = environments.reset(seed=seed)
        self._ended = np.zeros(self.count, bool)
        self._returns = np.zeros(self.count)
        policy.reset()

    def collect(self, steps: int) -> VectorSteps:
        """Act for some steps.

        Args:
            steps: Steps of each environment.

        Returns:
            The steps.

        Raises:
            UsageError: Observations do not fit the policy, masks are missing, or `steps` is 0.
        """
        if steps < 1:
            raise UsageError(f"{steps} steps cannot be collected", hint="give 1 or more")
        rows: list[tuple[Array, ...]] = []
        returns: list[float] = []
        for _ in range(steps):
            rows.append(self._step(returns))
        seen, actions, rewards, terminated, truncated, counted = map(
            np.stack, zip(*rows, strict=True)
        )
        return VectorSteps(seen, actions, rewards, terminated, truncated, counted, tuple(returns))

    def _step(self, returns: list[float]) -> tuple[Array, ...]:
        resets = self._begin_episodes()
        seen = self._observed(self._seen)
        actions = self.policy(seen, self.rng, self._masks())
        given = np.asarray(actions, self._space.dtype).reshape(self.count, *self._space.shape)
        self._seen, rewards, terminated, truncated, self._infos = self.environments.step(given)
        if resets.any():
            self.policy.reset(resets)
        self._returns += np.where(resets, 0, rewards)
        self._ended = (terminated | truncated) & ~resets
        returns += self._returns[self._ended].tolist()
        self._returns[self._ended] = 0
        return seen, actions, rewards, terminated, truncated, ~resets

    def _begin_episodes(self) -> Array:
        """Begin episodes where one has ended; returns where the next step is only a reset."""
        nothing = np.zeros(self.count, bool)
        if not self._ended.any():
            return nothing
        if self._mode == "NextStep":
            return self._ended
        if self._mode == "Disabled":
            self._seen, self._infos = self.environments.reset(options={"reset_mask": self._ended})
        self.policy.reset(self._ended)
        return nothing

    def _observed(self, observations: Array | Mapping[str, Array]) -> Array:
        if self._flat is None:
            return np.array(observations, np.float32)
        return self._flat.rows(observations)

    def _masks(self) -> Array | None:
        head = self.policy.head
        if head is None or not head.masks:
            return None
        if MASK not in self._infos:
            raise UsageError(
                "the policy needs masks of valid actions, and the environments give none",
                hint=f"give them as `{MASK}` in the infos of `reset` and `step`",
            )
        return np.asarray(self._infos[MASK], bool)


def _check_actions(policy: Policy, space: GymObject) -> None:
    """Raise UsageError if the head's actions do not fit the space."""
    head = policy.head
    if head is None:
        raise UsageError(
            "the policy has no head, so it has no actions", hint="quantize it with a head"
        )
    numbers = 1 if head.discrete else len(head.choices) if head.composite else len(head.low)
    integers = bool(np.issubdtype(space.dtype, np.integer))
    first = getattr(space, "start", 0)
    if head.integers != integers or numbers != int(np.prod(space.shape)) or np.any(first):
        raise UsageError(f"a `{head.kind}` head does not fit actions {space}")
