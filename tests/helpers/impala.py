"""A small IMPALA learner, and trajectories for it."""

import numpy as np

from qgraph.rl.agents import config_for
from qgraph.rl.agents.impala.learner import ImpalaLearner
from qgraph.rl.learn.records import record_type
from tests.helpers.rl_records import World

SCALE = 0.5
SMALL = {
    "in_process": True,
    "steps": 400,
    "actors": 3,
    "actor_bits": 8,
    "hidden_sizes": (16,),
    "layer_norm": False,
    "batch_size": 20,
    "reward_scale": SCALE,
    "entropy_cost": 0.02,
    "evaluate_every": 10,
    "episodes": 2,
}
WORLD = World((4,), count=3)
RECORD = record_type(WORLD)


def trajectories(n=5, b=4, seed=0):
    """Consecutive steps [n, b], with ends of both kinds."""
    rng = np.random.default_rng(seed)
    found = np.zeros((n, b), RECORD)
    states = rng.normal(size=(n + 1, b, 4))
    found["observation"], found["next_observation"] = states[:-1], states[1:]
    found["action"] = rng.integers(3, size=(n, b))
    found["reward"] = rng.normal(size=(n, b)) / SCALE
    found["discount"] = 0.9
    found["log_probability"] = np.log(rng.uniform(0.1, 0.9, (n, b)))
    found["length"][1, 0], found["discount"][1, 0] = 7, 0  # a terminal end
    found["length"][2, 1] = 9  # a truncated episode
    found["next_observation"][[1, 2], [0, 1]] += 1
    return found


def learner(**more):
    return ImpalaLearner(config_for("impala", "CartPole-v1", **{**SMALL, **more}), WORLD)
