"""Atari games, by ale-py."""

from __future__ import annotations

from typing import Any

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.environments.form import Actions, Outcome, imported, unknown

ATARI = "ALE/"
FRAMES = 4  # that an observation has, the newest last


class Atari:
    """84 x 84 grey, four frames as channels, as in the DQN papers; rewards are clipped to +-1."""

    dtype = np.dtype(np.uint8)

    def __init__(self, name: str) -> None:
        emulator = imported("ale_py", "atari")
        games = imported("ale_py.roms", "atari").get_all_rom_ids()
        game = "".join(
            f"_{letter.lower()}" if letter.isupper() else letter
            for letter in name.removeprefix(ATARI).partition("-")[0]
        ).lstrip("_")
        if game not in games:
            raise unknown(name, [ATARI + _title(g) + "-v5" for g in games])
        self.inner = emulator.vector_env.AtariVectorEnv(
            game=game, num_envs=1, num_threads=1, stack_num=FRAMES
        )
        self.shape: tuple[int, ...] = (84, 84, FRAMES)
        self.actions = Actions(count=int(self.inner.single_action_space.n))

    def reset(self, seed: int | None = None) -> Array:
        observations, _ = self.inner.reset(seed=seed)
        return self._image(observations)

    def step(self, action: Any) -> Outcome:
        observations, rewards, ended, cut, _ = self.inner.step(np.array([action]))
        over = bool(ended[0] or cut[0])
        return Outcome(self._image(observations), float(rewards[0]), 0.0 if ended[0] else 1.0, over)

    def close(self) -> None:
        self.inner.close()

    @staticmethod
    def _image(observations: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(observations[0], 0, -1))


def _title(game: str) -> str:
    return "".join(word.capitalize() for word in game.split("_"))
