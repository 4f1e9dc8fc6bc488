"""Replay: what is kept, and how often it is drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.rl.learn.replay import Replay, SumTree

DTYPE = np.dtype([("number", np.int64)])


def records(*numbers):
    return np.array([(n,) for n in numbers], DTYPE)


def kept(replay):
    return replay.state()["records"]["number"].tolist()


@given(st.integers(1, 9), st.lists(st.integers(0, 4), max_size=12))
def test_the_newest_are_kept_the_oldest_first(capacity, counts):
    replay, all_of_them = Replay(capacity, DTYPE, alpha=0.6), []
    for count in counts:
        new = list(range(len(all_of_them), len(all_of_them) + min(count, capacity)))
        replay.add(records(*new))
        all_of_them += new
    assert kept(replay) == all_of_them[-capacity:]


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("capacity", [3, 4, 7])
def test_what_was_saved_is_restored_into_any_capacity(alpha, capacity):
    replay = Replay(5, DTYPE, alpha)
    replay.add(records(0, 1, 2, 3))
    replay.add(records(4, 5, 6))
    replay.update(np.array([0, 1]), np.array([3.0, 5.0]))
    other = Replay(capacity, DTYPE, alpha)
    other.restore(replay.state())
    assert kept(other) == kept(replay)[-capacity:]
    other.add(records(7))
    assert kept(other) == [*kept(replay), 7][-capacity:]
    if alpha:
        wanted = replay.state()["priorities"].tolist()
        assert other.state()["priorities"].tolist()[:-1] == [*wanted, 0][-capacity:][:-1]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.floats(0, 1))
def test_sums_are_found_where_the_running_sum_passes_them(values, share):
    tree = SumTree(len(values))
    tree.set(np.arange(len(values)), np.array(values))
    assert tree.total == pytest.approx(sum(values))
    if tree.total > 0:
        (place,) = tree.find(np.array([share * tree.total]))
        assert values[place] > 0
        assert sum(values[:place]) <= share * tree.total * (1 + 1e-9) + 1e-9
        assert sum(values[: place + 1]) >= share * tree.total * (1 - 1e-9) - 1e-9


def test_nothing_is_found_past_the_last():
    tree = SumTree(3)  # of four leaves
    tree.set(np.arange(3), np.array([1.0, 1.0, 1.0]))
    assert tree.find(np.array([3.0, 3.1])).tolist() == [2, 2]


def test_draws_go_by_priority_and_importance_makes_up_for_it():
    replay = Replay(4, DTYPE, alpha=1.0, beta=1.0)
    replay.add(records(0, 1, 2, 3))
    replay.update(np.arange(4), np.array([1.0, 1.0, 2.0, 4.0]))
    batch = replay.sample(80_000, np.random.default_rng(0))
    shares = np.bincount(batch.places, minlength=4) / 80_000
    assert shares == pytest.approx([1 / 8, 1 / 8, 1 / 4, 1 / 2], abs=0.01)
    assert batch.importance[batch.places == 3] == pytest.approx(0.25, rel=1e-4)
    assert batch.importance.max() == 1
    assert (batch.records["number"] == batch.places).all()


def test_what_is_new_is_drawn_as_the_most_surprising():
    replay = Replay(8, DTYPE, alpha=1.0)
    replay.add(records(0, 1))
    replay.update(np.array([0, 1]), np.array([9.0, 1.0]))
    replay.add(records(2))
    assert replay.tree.get(np.array([2])) == pytest.approx(9, rel=1e-4)


def test_uniform_draws_reach_everything_and_nothing_else():
    replay = Replay(100, DTYPE)
    replay.add(records(*range(10)))
    batch = replay.sample(1000, np.random.default_rng(0))
    assert set(batch.places) == set(range(10))
    assert (batch.importance == 1).all()
