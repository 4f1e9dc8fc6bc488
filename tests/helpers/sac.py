"""SAC's learner on generated transitions."""

import numpy as np

from qgraph.rl.agents import config_for
from qgraph.rl.agents.sac.learner import SacLearner
from tests.helpers.rl_records import World, transitions


def learner(world=None, **settings):
    world = world or World()
    small = {"hidden_sizes": (8,), "critic_hidden_sizes": (8,), "batch_size": 16, **settings}
    return SacLearner(config_for("sac", "fixed", **small), world)


def batches(world, count, size=16, seed=0, rewards=1.0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        batch = transitions(world, size, rng)
        batch.records["reward"] *= rewards
        yield batch


def weights_of(sac):
    parts = {"actor": sac.actor, "critic": sac.critic, "average": sac.average.read()}
    found = {f"{part}/{k}": np.asarray(v) for part, vs in parts.items() for k, v in vs.items()}
    return {**found, "log_alpha": sac.log_alpha.numpy()}


def apart(a, b):
    """The largest difference of weights, relative to the largest weight of its kind."""
    both = [(a[name], b[name]) for name in a]
    return max(np.abs(x - y).max() / max(np.abs(x).max(), 1e-3) for x, y in both)


def types_of(sac):
    kept = [*sac.actor.values(), *sac.critic.values(), *sac.average.state.values(), sac.log_alpha]
    for descent in sac.descents.values():
        optimizer = descent.optimizer
        kept += [*optimizer.first, *optimizer.second, *optimizer.compensation]
    return {v.dtype for v in kept}
