"""A small policy and a compressor at work on it."""

import numpy as np

from qgraph.rl.compress.chain_policy import PolicySpec
from qgraph.rl.compress.settings import Settings
from qgraph.rl.head import Head
from tests.helpers.actors import mlp, random_weights

PROGRAM = mlp(4, 32, 3)
SPEC = PolicySpec(PROGRAM, Head("argmax"))


def worker(text, **more):
    return Settings(text, **more).worker(SPEC)


def weights(bias=0.0, seed=0):
    found = random_weights(PROGRAM, seed)
    found["b0"][0] = bias
    return found


def seen(n=64):
    return np.random.default_rng(5).normal(size=(n, 4)).astype("f4")
