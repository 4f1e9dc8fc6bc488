"""Records that an actor sends to the learner."""

import numpy as np
import pytest

from qgraph.rl.agents import config_for
from qgraph.rl.environments import Actions, Outcome
from qgraph.rl.head import Head
from qgraph.rl.learn import worker


class Generous:
    """Rewards of 10 and -3 in turn, five steps."""

    shape, dtype, actions = (2,), np.dtype(np.float32), Actions(count=2)

    def reset(self, seed=None):
        self.steps = 0
        return np.zeros(2, np.float32)

    def step(self, action):
        self.steps += 1
        reward = 10.0 if self.steps % 2 else -3.0
        return Outcome(np.zeros(2, np.float32), reward, 1.0, self.steps == 5)

    def close(self):
        pass


class Still:
    version = 1

    def __call__(self, observations):
        return np.zeros((len(observations), 2), np.float32)


@pytest.mark.parametrize(
    ("clip", "learnt"), [(0.0, [10, -3, 10, -3, 10]), (1.0, [1, -1, 1, -1, 1]), (5, [5, -3] * 2)]
)
def test_rewards_are_clipped_for_the_learner_and_returns_are_not(monkeypatch, clip, learnt):
    monkeypatch.setattr(worker, "make", lambda name: Generous())
    options = config_for("dqn", "Any-v0", reward_clip=clip, n_step=1, steps=2000)
    one = worker.ActorWorker(options, 0, Head("argmax"), Still)
    records = np.concatenate([one.step() for _ in range(5)])
    assert records["reward"].tolist()[: len(learnt)] == learnt
    assert records["returned"][-1] == 10 - 3 + 10 - 3 + 10
