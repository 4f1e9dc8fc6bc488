"""The rate limiter: both bounds hold, and there is always something that may be done."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import UsageError
from qgraph.rl.learn.limiter import RateLimiter

limiters = st.builds(
    RateLimiter,
    ratio=st.floats(0.01, 500, allow_nan=False),
    min_inserts=st.integers(1, 200),
    batch=st.integers(1, 300),
    slack=st.floats(0, 2000),
)


def moves(limiter: RateLimiter, choices: list[tuple[bool, int]]):
    """Inserts and samples in any order: what is not allowed at the moment is passed over."""
    for samples, count in choices:
        if samples:
            if limiter.may_sample():
                limiter.sample()
                yield True
        elif limiter.may_insert():
            limiter.insert(min(count, limiter.may_insert()))
            yield False


orders = st.lists(st.tuples(st.booleans(), st.integers(1, 64)), max_size=400)


@given(limiters, orders)
def test_there_is_always_something_that_may_be_done(limiter, choices):
    assert limiter.may_insert() or limiter.may_sample()
    for _ in moves(limiter, choices):
        assert limiter.may_insert() or limiter.may_sample()


@given(limiters, orders)
def test_samples_stay_near_the_ratio_from_both_sides(limiter, choices):
    for _ in moves(limiter, choices):
        if limiter.inserts > limiter.min_inserts or limiter.samples:
            due = limiter.ratio * (limiter.inserts - limiter.min_inserts)
            assert abs(due - limiter.samples) <= limiter.slack * (1 + 1e-9)


@given(limiters)
def test_the_limiter_stops_the_faster_side_only(limiter):
    for _ in range(20):
        while limiter.may_sample():
            limiter.sample()
        assert limiter.may_insert()
        while limiter.may_insert():
            limiter.insert(limiter.may_insert())
        assert limiter.may_sample()


def test_nothing_is_sampled_before_there_is_enough():
    limiter = RateLimiter(8, min_inserts=100, batch=32)
    limiter.insert(99)
    assert not limiter.may_sample() and limiter.may_insert() == 1
    limiter.insert(1)
    assert limiter.may_sample()


@given(limiters, orders, orders)
def test_a_new_start_forgets_earlier_samples(limiter, choices, more):
    list(moves(limiter, choices))
    inserts, min_inserts = limiter.inserts, limiter.min_inserts
    limiter.restart(min_inserts)
    assert not limiter.may_sample() and limiter.may_insert() == min_inserts
    for _ in moves(limiter, more):
        assert limiter.may_insert() or limiter.may_sample()
        assert limiter.samples == limiter.before or limiter.inserts >= inserts + min_inserts


@pytest.mark.parametrize("wrong", [{"ratio": 0}, {"min_inserts": 0}, {"batch": 0}])
def test_what_is_not_above_0_is_refused(wrong):
    with pytest.raises(UsageError, match="above 0"):
        RateLimiter(**{"ratio": 8, "min_inserts": 1, "batch": 1, **wrong})
