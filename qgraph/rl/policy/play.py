"""Episodes of a policy, played side by side so that one run of the network serves all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from qgraph.ir.types import Array
from qgraph.progress import Progress, silent
from qgraph.rl.environments import Environment, make
from qgraph.rl.head import Head

Outputs = Callable[[Array], Array]  # observations [n, ...] to the first output, [n, m]
SIDE_BY_SIDE = 64


@dataclass(frozen=True)
class Returns:
    """Undiscounted returns, one for each episode, and the steps of each."""

    each: Array
    steps: Array

    @property
    def mean(self) -> float:
        return float(self.each.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return _error(self.each)

    def change_from(self, other: Returns) -> tuple[float, float]:
        """The change of the mean from `other`'s on the same seeds, relative to it, and its error.

        The error is that of the paired differences.
        """
        lost, whole = self.each - other.each, max(abs(other.mean), 1e-12)
        return float(lost.mean()) / whole, _error(lost) / whole


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def play(
    environment: str,
    policy: Outputs,
    head: Head,
    seeds: Sequence[int],
    progress: Progress = silent,
    stage: str = "playing",
    rng: np.random.Generator | None = None,
) -> Returns:
    """One episode from each seed, with the likeliest actions, or drawn by `rng`.

    Each has a new environment: some, such as those of Box2D, keep more than a reset restores, and
    an episode would depend on those before it. Raises the errors of `make`.
    """
    returns = np.zeros(len(seeds))
    steps = np.zeros(len(seeds), np.int64)
    with ExitStack() as stack:
        environments: list[Environment] = []
        stack.callback(_close, environments)
        for _ in seeds[:SIDE_BY_SIDE]:
            environments.append(make(environment))
        waiting = list(range(len(seeds)))[::-1]
        playing: dict[int, tuple[int, Array]] = {}  # slot: episode, what it sees
        for slot in range(len(environments)):
            _begin(slot, environments, playing, waiting, seeds)
        while playing:
            slots = list(playing)
            seen = np.stack([np.asarray(playing[slot][1], np.float32) for slot in slots])
            for slot, action in zip(slots, head.actions(policy(seen), rng), strict=True):
                episode = playing[slot][0]
                outcome = environments[slot].step(action)
                returns[episode] += outcome.reward
                steps[episode] += 1
                if outcome.over:
                    del playing[slot]
                    progress(stage, len(seeds) - len(waiting) - len(playing), len(seeds))
                    if waiting:
                        used, environments[slot] = environments[slot], make(environment)
                        used.close()
                    _begin(slot, environments, playing, waiting, seeds)
                else:
                    playing[slot] = (episode, outcome.observation)
    return Returns(returns, steps)


def _close(environments: Sequence[Environment]) -> None:
    for one in environments:
        one.close()


def _begin(
    slot: int,
    environments: Sequence[Environment],
    playing: dict[int, tuple[int, Array]],
    waiting: list[int],
    seeds: Sequence[int],
) -> None:
    if waiting:
        episode = waiting.pop()
        playing[slot] = (episode, environments[slot].reset(seeds[episode]))


def watch(environment: str, policy: Outputs, head: Head, steps: int, seed: int = 0) -> Array:
    """The observations of a policy, episode after episode, [steps, ...] float32."""
    one = make(environment)
    try:
        seen, now = [], one.reset(seed)
        for _ in range(steps):
            seen.append(np.asarray(now, np.float32))
            outcome = one.step(head.actions(policy(seen[-1][None]))[0])
            now = one.reset() if outcome.over else outcome.observation
    finally:
        one.close()
    return np.stack(seen)
