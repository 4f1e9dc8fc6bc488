"""Atari games, by ale-py."""

from __future__ import annotations

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.environments.environment import Action, Actions, Outcome, imported, unknown

ATARI = "ALE/"
FRAMES = 4  # frames of an observation, the newest last
# Settings of a game in ale-py's registry that its vector environment takes; others are refused.
SETTINGS = (
    "game", "repeat_action_probability", "full_action_space", "frameskip",
    "max_num_frames_per_episode",
)  # fmt: skip


class Atari:
    """84 x 84 grey, four frames as channels, up to 30 no-ops at the start, as in the DQN papers.

    Names are those that ale-py registers with gymnasium: `-v5` repeats the last action with a
    probability of 0.25 and skips 4 frames. Rewards are not clipped; a learner may clip them by
    `reward_clip`.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, name: str) -> None:
        emulator = imported("ale_py", "atari")
        registry = imported("gymnasium").registry  # ale_py registers its games on import
        spec = registry.get(name)
        if spec is None or not set(spec.kwargs) <= set(SETTINGS):
            known = [game for game in registry if game.startswith(ATARI)]
            raise unknown(name, known, "use the names of ale-py, like ALE/Pong-v5")
        self.inner = emulator.vector_env.AtariVectorEnv(
            num_envs=1, num_threads=1, stack_num=FRAMES, reward_clipping=False, **spec.kwargs
        )
        self.shape: tuple[int, ...] = (84, 84, FRAMES)
        self.actions = Actions(count=int(self.inner.single_action_space.n))

    def reset(self, seed: int | None = None) -> Array:
        observations, _ = self.inner.reset(seed=seed)
        return self._image(observations)

    def step(self, action: Action) -> Outcome:
        observations, rewards, ended, cut, _ = self.inner.step(np.array([action]))
        over = bool(ended[0] or cut[0])
        return Outcome(self._image(observations), float(rewards[0]), 0.0 if ended[0] else 1.0, over)

    def close(self) -> None:
        self.inner.close()

    @staticmethod
    def _image(observations: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(observations[0], 0, -1))
