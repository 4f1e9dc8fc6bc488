"""Rollouts: actors and learner take turns, and each step is used once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.rl.actor import Actor, Packer
from qgraph.rl.head import Head
from qgraph.rl.learn.exploration import Gaussian
from qgraph.rl.learn.limiter import TakingTurns
from qgraph.rl.learn.networks import initial_weights, network, orthogonal_weights, with_log_std
from qgraph.rl.learn.queue import RolloutMemory, follows
from qgraph.rl.learn.records import record_type
from tests.helpers.rl_records import World

RECORD = record_type(World((2,), count=2))
ORDERS = st.lists(st.tuples(st.booleans(), st.integers(1, 30)), max_size=100)


@given(ORDERS, st.booleans())
def test_neither_side_is_ahead_by_more_than_a_batch(order, restarted):
    limiter = TakingTurns(1.0, 20, 20)
    if restarted:
        limiter.insert(13)
        limiter.restart(20)
    held = 0
    for samples, count in order:
        assert limiter.may_insert() == 20 - held and limiter.may_sample() == (held == 20)
        if samples and limiter.may_sample():
            limiter.sample()
            held = 0
        elif not samples and limiter.may_insert():
            count = min(count, limiter.may_insert())
            limiter.insert(count)
            held += count
    assert TakingTurns(1.0, 20, 20, inserts=400).ahead // 20 == 20  # learner steps of a run


@given(st.lists(st.integers(0, 2), min_size=25, max_size=60))
def test_the_oldest_steps_are_taken_out_by_actor(actors):
    steps = np.zeros(len(actors), RECORD)
    steps["actor"], steps["length"] = actors, np.arange(len(actors))
    rollout, taken = RolloutMemory(RECORD), []
    for step in steps:
        rollout.add(step[None])
        if len(rollout) == 12:
            taken.append(rollout.sample(10, np.random.default_rng(0)).records)
    for i, found in enumerate(taken):
        oldest = steps[10 * i : 10 * i + 10]
        wanted = [step for actor in range(3) for step in oldest[oldest["actor"] == actor]]
        assert np.array_equal(found, np.array(wanted))
    assert len(rollout) == len(steps) - 10 * len(taken)
    assert rollout.nbytes == len(rollout) * RECORD.itemsize and not rollout.state()


def test_a_step_is_not_followed_by_one_of_another_actor():
    """Even where all observations are equal."""
    steps = np.zeros(6, RECORD)
    steps["actor"], steps["length"] = [0, 0, 0, 1, 1, 1], [0, 3, 0, 0, 0, 0]
    assert follows(steps).tolist() == [1, 0, 0, 1, 1, 0]
    steps["observation"][5] = 1
    assert follows(steps).tolist() == [1, 0, 0, 1, 0, 0]


def test_trajectories_of_one_step_have_no_next_one():
    assert follows(np.zeros((1, 3), RECORD)).tolist() == [[0, 0, 0]]


@given(st.lists(st.floats(-3, 2, width=32), min_size=4, max_size=4), st.integers(0, 2**32))
def test_normal_actions_are_stored_before_their_clip(numbers, seed):
    head = Head("gaussian", (-1.0, -0.5), (1.0, 0.5), (0.0, 0.0))
    outputs = np.array(numbers, np.float32)
    drawn = Gaussian(head).choose(outputs, 0, np.random.default_rng(seed))
    assert np.array_equal(drawn.sent, np.clip(drawn.action, [-1, -0.5], [1, 0.5]))
    mean, log_std = np.split(outputs.astype(float), 2)
    away = (drawn.action - mean) / np.exp(log_std)
    density = -(away**2 / 2 + log_std + np.log(2 * np.pi) / 2).sum()
    assert drawn.log_probability == pytest.approx(density, abs=1e-3)  # of a float32 action


def test_normal_actions_have_their_means_and_deviations():
    outputs = np.array([1.0, -2.0, np.log(0.5), np.log(3.0)], np.float32)
    explore = Gaussian(Head("gaussian", (-9.0, -9.0), (9.0, 9.0), (0.0, 0.0)))
    rng = np.random.default_rng(0)
    drawn = np.array([explore.choose(outputs, 0, rng).action for _ in range(20_000)])
    error = np.array([0.5, 3.0]) / np.sqrt(20_000)
    assert (abs(drawn.mean(0) - [1, -2]) < 5 * error).all()
    assert (abs(drawn.std(0) - [0.5, 3]) < 5 * error).all()


@pytest.mark.parametrize("bits", [32, 16, 8, 4, 2])
def test_deviations_are_exact_in_blocks_of_any_bits(bits):
    rng = np.random.default_rng(0)
    policy = network((4,), (8,), 3, activation="tanh")
    log_std = rng.normal(size=3).astype(np.float32)
    weights = initial_weights(policy, rng)
    more = {"log_std/scale": np.zeros(3, np.float32), "log_std/offset": log_std}
    drawing = with_log_std(policy)
    block = Packer(drawing, bits).pack({**weights, **more})
    x = rng.normal(size=(50, 4)).astype(np.float32)
    found = Actor(block)(x)
    assert np.array_equal(found[:, :3], Actor(Packer(policy, bits).pack(weights))(x))
    assert np.array_equal(found[:, 3:], np.tile(log_std, (50, 1)))


def test_first_kernels_are_orthogonal():
    program = network((36, 36, 3), (20, 40), 5)
    weights = orthogonal_weights(program, np.random.default_rng(0), 0.01)
    for name, kernel in weights.items():
        layer, _, kind = name.rpartition("/")
        if kind == "kernel":
            matrix = kernel.reshape(-1, kernel.shape[-1]).astype(float)
            matrix = matrix if len(matrix) >= len(matrix.T) else matrix.T
            square = 1e-4 if layer == "output" else 2.0
            assert matrix.T @ matrix == pytest.approx(square * np.eye(len(matrix.T)), abs=1e-5)
    assert (
        set(weights["scaled/scale"]) == {np.float32(1 / 255)} and not weights["output/bias"].any()
    )
