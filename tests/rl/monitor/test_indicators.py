"""Indicators against direct computations, and the laws of divergences."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.rl.compress import ChainPolicy, Compressor
from qgraph.rl.compress.action_distributions import soft
from qgraph.rl.head import Head
from qgraph.rl.monitor import LearnerFacts, measure
from qgraph.rl.policy.shift import divergences
from tests.helpers.actors import mlp, random_weights

KINDS = ("argmax", "categorical", "clip", "scale", "gaussian", "squashed_gaussian")


def head(kind):
    log_std = (0.2, -1.0) if kind == "gaussian" else ()
    return Head(kind, (-1.0, 0.0), (1.0, 3.0), log_std)


def whole(kind="categorical", seed=0):
    program = mlp(4, 16, 4 if kind == "squashed_gaussian" else 2, activation="tanh")
    return ChainPolicy(program, random_weights(program, seed), head(kind))


def seen(n=50, seed=1):
    return np.random.default_rng(seed).normal(size=(n, 4)).astype("f4")


@settings(max_examples=30)
@given(st.sampled_from(KINDS), st.integers(0, 99), st.integers(0, 99))
def test_divergences_are_at_least_0_and_0_for_equal_policies(kind, a, b):
    found = measure(whole(kind, a), whole(kind, b), seen(), LearnerFacts())
    assert 0 <= found.kl_mean <= found.kl_max and found.kl_variance >= 0
    if a == b:
        assert found.kl_max < 1e-9
    else:
        assert found.kl_mean > 0


def test_numbers_of_discrete_policies():
    original = whole()
    small = Compressor().quantize(2)(original)
    x = seen(5)
    kl, entropies = [], []
    for p, q in zip(original.actor()(x).astype(float), small.actor()(x).astype(float), strict=True):
        p, q = ([math.exp(v) / sum(map(math.exp, row)) for v in row] for row in (p, q))
        kl.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
        entropies.append(-sum(b * math.log(b) for b in q))
    found = measure(original, small, x, LearnerFacts(7, 3.5, 20.0, 100.0, 80.0, 12.0))
    mean = sum(kl) / 5
    assert found.kl_mean == pytest.approx(mean)
    assert found.kl_max == pytest.approx(max(kl))
    assert found.kl_variance == pytest.approx(sum((k - mean) ** 2 for k in kl) / 5)
    assert found.entropy == pytest.approx(sum(entropies) / 5)
    assert found.reward_gap == 20.0 and found.returned == 20.0
    assert (found.version, found.seconds, found.staleness) == (7, 3.5, 12.0)


def test_a_deterministic_policy_is_taken_with_a_tenth_of_its_range():
    made = soft(head("clip"))
    assert made.kind == "gaussian" and np.exp(made.log_std) == pytest.approx([0.2, 0.3])
    found = divergences(made, np.array([[0.0, 0.0]]), np.array([[0.2, 0.6]]))
    assert found == pytest.approx([(1 + 4) / 2])
    assert np.exp(soft(head("scale")).log_std) == pytest.approx([0.2, 0.2])
    assert soft(head("squashed_gaussian")) == head("squashed_gaussian")


def test_what_is_not_known_is_nan():
    found = measure(whole(), whole(), seen(), LearnerFacts(original_return=5.0))
    assert math.isnan(found.reward_gap) and math.isnan(found.returned)
