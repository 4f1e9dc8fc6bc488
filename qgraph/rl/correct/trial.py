"""A trial of a correction before a run begins, in a TensorFlow graph like the learner's.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from qgraph.errors import UnsupportedError, first_line
from qgraph.rl.correct.correction import Correction
from qgraph.rl.correct.correctors import name_of
from qgraph.rl.correct.trajectories import Trajectories


def try_once(correct: Correction, n: int, b: int) -> None:
    """Run a correction on random trajectories [n, b].

    Raises the errors of `Correction`, and UnsupportedError for errors while the graph runs.
    """
    steps = _random_trajectories(n, b, of_actions=correct.of_actions)
    try:
        tf.function(lambda: vars(correct(steps, tf)), autograph=False)()
    except tf.errors.OpError as error:
        names = ",".join(map(name_of, correct.links))
        raise UnsupportedError(f"`{names}` failed: {first_line(error.message)}") from error


def _random_trajectories(n: int, b: int, *, of_actions: bool) -> Trajectories:
    rng = np.random.default_rng(0)
    log_pi, log_mu = np.log(rng.uniform(0.1, 1, (2, n, b)))
    rewards, values, next_values, q = rng.normal(size=(4, n, b))
    discounts, follows = np.full((n, b), 0.99), np.ones((n, b))
    parts = (log_pi, log_mu, rewards, discounts, follows, values, next_values)
    found = [tf.constant(part, tf.float32) for part in (*parts, *([q] if of_actions else []))]
    return Trajectories(*found)
