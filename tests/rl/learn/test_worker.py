"""Records that an actor sends to the learner."""

import numpy as np
import pytest

from qgraph.rl.agents import config_for
from qgraph.rl.head import Head
from qgraph.rl.learn import worker
from tests.helpers.rl_records import Episodes, FixedPolicy

REWARDS = (10.0, -3.0, 10.0, -3.0, 10.0)


@pytest.mark.parametrize(
    ("clip", "learnt"), [(0.0, [10, -3, 10, -3, 10]), (1.0, [1, -1, 1, -1, 1]), (5, [5, -3] * 2)]
)
def test_rewards_are_clipped_for_the_learner_and_returns_are_not(monkeypatch, clip, learnt):
    monkeypatch.setattr(worker, "make", lambda name: Episodes(REWARDS, ended=False, count=2))
    options = config_for("dqn", "Any-v0", reward_clip=clip, n_step=1, steps=2000)
    one = worker.ActorWorker(options, 0, Head("argmax"), lambda taken: FixedPolicy([0, 0]))
    records = np.concatenate([one.step() for _ in range(5)])
    assert records["reward"].tolist()[: len(learnt)] == learnt
    assert records["returned"][-1] == sum(REWARDS)
