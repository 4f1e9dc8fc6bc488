"""Transitions over several steps, against sums written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.rl.environments import Outcome
from qgraph.rl.head import Head
from qgraph.rl.learn.exploration import Epsilon, Noise, epsilon_ladder, sigma_ladder
from qgraph.rl.learn.records import Window


def transitions(steps, rewards, *, ended, gamma=0.5):
    """Transitions of an episode of these rewards, whose observation at time t is t."""
    window, found = Window(steps, gamma), []
    for t, reward in enumerate(rewards):
        over = t == len(rewards) - 1
        discount = 0.0 if over and ended else 1.0
        outcome = Outcome(np.array(t + 1.0), reward, discount, over)
        found += window.add(np.array(float(t)), t, 7, outcome)
    assert not window.pending
    return found


@given(st.integers(1, 6), st.lists(st.floats(-9, 9), min_size=1, max_size=12), st.booleans())
def test_each_step_is_one_transition(steps, rewards, ended):
    found = transitions(steps, rewards, ended=ended)
    assert len(found) == len(rewards)
    for t, (observation, action, reward, discount, following, version, _) in enumerate(found):
        last = min(t + steps, len(rewards))
        assert (observation, action, version, following) == (t, t, 7, last)
        assert reward == pytest.approx(sum(0.5**k * r for k, r in enumerate(rewards[t:last])))
        cut = ended and last == len(rewards)
        assert discount == (0 if cut else 0.5 ** (last - t))


def test_episodes_do_not_run_into_each_other():
    window = Window(3, 1.0)
    window.add(np.zeros(1), 0, 0, Outcome(np.ones(1), 5.0, 0.0, True))
    found = window.add(np.zeros(1), 0, 0, Outcome(np.ones(1), 2.0, 1.0, True))
    assert [row[2] for row in found] == [2.0]


def test_ladders():
    assert [epsilon_ladder(i, 3, 0.4) for i in range(3)] == pytest.approx([0.4, 0.4**4.5, 0.4**8])
    assert epsilon_ladder(0, 1, 0.05) == 0.05
    assert [sigma_ladder(i, 4, 0.2) for i in range(4)] == pytest.approx([0.05, 0.1, 0.15, 0.2])


def test_epsilon_falls_to_its_last():
    rng, outputs = np.random.default_rng(0), np.array([0, 1, 0, 0], np.float32)
    explore = Epsilon(0.2, 100)

    def greedy(step):
        return np.mean([explore.choose(outputs, step, rng)[0] == 1 for _ in range(4000)])

    assert greedy(0) == pytest.approx(0.25, abs=0.03)
    assert greedy(50) == pytest.approx(1 - 0.6 * 0.75, abs=0.03)
    assert greedy(1000) == pytest.approx(1 - 0.2 * 0.75, abs=0.03)


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_held_actions_have_their_share_of_steps_and_their_length(share):
    rng, outputs = np.random.default_rng(0), np.array([1] + [0] * 99, np.float32)
    explore = Epsilon(share, 0, hold=8)
    actions = np.array([explore.choose(outputs, 5, rng)[0] for _ in range(40_000)])
    assert np.mean(actions != 0) == pytest.approx(share * 0.99, abs=0.04)
    changes = np.flatnonzero(np.diff(actions))
    runs = np.diff(changes)[actions[changes[:-1] + 1] != 0]
    assert runs.mean() == pytest.approx(8, rel=0.1)


def test_noise_has_its_deviation_and_stays_within_bounds():
    explore, rng = Noise(0.2, Head("scale", (0.0,), (10.0,))), np.random.default_rng(0)
    drawn = [explore.choose(np.zeros(1, np.float32), 0, rng) for _ in range(4000)]
    stored = np.array([choice.action for choice in drawn])
    assert stored.std() == pytest.approx(0.2, rel=0.05)
    sent = np.array([choice.sent for choice in drawn])
    assert np.allclose(sent, (stored + 1) * 5, atol=1e-5)
    action, *_ = explore.choose(np.array([3.0], np.float32), 0, rng)
    assert action <= 1
