"""Episodes of a policy, played side by side so that one run of the network serves all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.progress import Progress, silent
from qgraph.rl.environments import Environment, make
from qgraph.rl.head import Head
from qgraph.rl.policy.recurrent_outputs import RecurrentOutputs

# Observations [n, ...] to the first output, [n, m]; `RecurrentOutputs` for a policy with states.
Outputs = Callable[[Array], Array]
SIDE_BY_SIDE = 64
SEQUENCE = 64  # the most steps of a sequence for calibration


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
        recurrent = policy if isinstance(policy, RecurrentOutputs) else None
        states = None if recurrent is None else recurrent.first_states(len(environments))
        playing: dict[int, tuple[int, Array]] = {}  # slot: episode, what it sees
        for slot in range(len(environments)):
            _begin(slot, environments, playing, waiting, seeds)
        while playing:
            slots = list(playing)
            seen = np.stack([np.asarray(playing[slot][1], np.float32) for slot in slots])
            if recurrent is None or states is None:
                outputs = policy(seen)
            else:
                outputs, states[slots] = recurrent.step(seen, states[slots])
            masks = masks_of([environments[slot] for slot in slots], head)
            for slot, action in zip(slots, head.actions(outputs, rng, masks), strict=True):
                episode = playing[slot][0]
                outcome = environments[slot].step(action)
                returns[episode] += outcome.reward
                steps[episode] += 1
                if outcome.over:
                    if states is not None:
                        states[slot] = 0
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


def masks_of(environments: Sequence[Environment], head: Head) -> Array | None:
    """The valid options in each environment, bool [n, outputs]; None for a head without masks.

    Raises UsageError for an environment without masks.
    """
    if not head.masks:
        return None
    given = [getattr(one, "mask", lambda: None)() for one in environments]
    masks = [mask for mask in given if mask is not None]
    if len(masks) < len(given):
        raise UsageError(
            "the policy needs masks of valid actions, and the environment has none",
            hint="give the environment a method `action_masks`, as for sb3-contrib's MaskablePPO",
        )
    return np.stack(masks)


def watch(environment: str, policy: Outputs, head: Head, steps: int, seed: int = 0) -> Array:
    """The observations of a policy, episode after episode, [steps, ...] float32.

    Those of a recurrent policy are rows with its states behind them.
    """
    return np.concatenate(watch_episodes(environment, policy, head, steps, seed))


def watch_episodes(
    environment: str, policy: Outputs, head: Head, steps: int, seed: int = 0
) -> list[Array]:
    """The observations of each episode, as from `watch`; the last episode is not complete."""
    one = make(environment)
    recurrent = policy if isinstance(policy, RecurrentOutputs) else None
    try:
        episodes, seen, now = list[Array](), list[Array](), one.reset(seed)
        states = None if recurrent is None else recurrent.first_states(1)
        for _ in range(steps):
            shown = np.asarray(now, np.float32)[None]
            if recurrent is None or states is None:
                outputs = policy(shown)
            else:
                shown, (outputs, states) = (
                    recurrent.rows(shown, states),
                    recurrent.step(shown, states),
                )
            seen.append(shown[0])
            outcome = one.step(head.actions(outputs, None, masks_of([one], head))[0])
            now = outcome.observation
            if outcome.over:
                episodes.append(np.stack(seen))
                seen, now = [], one.reset()
                states = None if recurrent is None else recurrent.first_states(1)
    finally:
        one.close()
    return [*episodes, np.stack(seen)] if seen else episodes


def sequences_of(episodes: Sequence[Array], observed: int, shape: tuple[int, ...]) -> Array:
    """Sequences [n, steps, *shape] of one length, cut from rows of episodes, without states.

    The length is that of the middle episode, at most 64; shorter rests are left out, unless there
    is nothing else.
    """
    lengths = sorted(len(episode) for episode in episodes)
    steps = min(SEQUENCE, lengths[len(lengths) // 2])
    cut = [
        episode[at : at + steps, :observed].reshape(steps, *shape)
        for episode in episodes
        for at in range(0, len(episode) - steps + 1, steps)
    ]
    return np.stack(cut)
