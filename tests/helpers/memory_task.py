"""A task that no policy without memory solves: a cue at the start decides about the end."""

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 6
NAME = "tests.helpers.memory_task:Cue-v0"


class Cue(gymnasium.Env):
    """The first observation has -1 or 1; the action of the last step must be 0 or 1 accordingly."""

    observation_space = spaces.Box(-1, 1, (3,))
    action_space = spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.cue = 0, int(self.np_random.integers(2))
        return self._seen(), {}

    def step(self, action):
        last = self.steps == LENGTH - 1
        reward = 0.0 if not last else 1.0 if action == self.cue else -1.0
        self.steps += 1
        return self._seen(), reward, last, False, {}

    def _seen(self):
        shown = 2 * self.cue - 1 if self.steps == 0 else 0
        return np.float32([shown, self.steps == LENGTH - 1, 1])


gymnasium.register("Cue-v0", entry_point=Cue)
