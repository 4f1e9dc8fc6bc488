"""A small PPO learner, and rollouts for it."""

import numpy as np

from qgraph.rl.agents import config_for
from qgraph.rl.agents.ppo.learner import PpoLearner
from qgraph.rl.learn.records import record_type
from tests.helpers.rl_records import World, batch_of

SMALL = {
    "in_process": True,
    "steps": 300,
    "actors": 3,
    "hidden_sizes": (16,),
    "critic_hidden_sizes": (8,),
    "batch_size": 60,
    "minibatch_size": 20,
    "epochs": 2,
    "evaluate_every": 10,
    "episodes": 1,
}
WORLDS = {True: World((4,), count=3), False: World((4,), actions=2)}  # by whether it is discrete


def learner(discrete=True, **more):
    return PpoLearner(config_for("ppo", "Any-v0", **{**SMALL, **more}), WORLDS[discrete])


def rollout(discrete=True, n=60, seed=0):
    """Consecutive steps of two actors, with ends of both kinds, and log probabilities near those of
    a new policy.
    """
    rng = np.random.default_rng(seed)
    found = np.zeros(n, record_type(WORLDS[discrete]))
    states = rng.normal(size=(n + 1, 4))
    found["observation"], found["next_observation"] = states[:-1], states[1:]
    found["actor"][n // 2 :] = 1
    found["action"] = rng.integers(3, size=n) if discrete else rng.normal(size=(n, 2))
    found["reward"], found["discount"] = rng.normal(size=n), 0.9
    usual = -np.log(3) if discrete else -((found["action"] ** 2).sum(-1) / 2 + np.log(2 * np.pi))
    found["log_probability"] = usual + rng.uniform(-0.4, 0.4, n)
    found["length"][5], found["discount"][5] = 6, 0  # a terminal end
    found["length"][11] = 6  # a truncated episode
    found["next_observation"][[5, 11]] += 1
    return batch_of(found)
