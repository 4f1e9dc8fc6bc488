"""Who gets how many bits: laws of the assignment, and budgets that cannot be met."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import UsageError
from qgraph.quant.bits import Budget, assign, budget_of, check_budgets, cost

WIDTHS = st.sets(st.sampled_from([2, 3, 4, 8, 16]), min_size=1)
NOISE = st.floats(0, 10, allow_nan=False)
UNITS = st.lists(
    st.tuples(
        st.integers(1, 1000),
        WIDTHS.flatmap(lambda w: st.fixed_dictionaries(dict.fromkeys(w, NOISE))),
    ),
    min_size=1,
    max_size=6,
)


def least(units) -> int:
    return sum(size * min(noise) for size, noise in units)


@given(UNITS, st.floats(0, 20_000))
def test_within_the_budget_and_of_the_widths_there_are(units, more: float) -> None:
    sizes, noise = [u[0] for u in units], [u[1] for u in units]
    limit = least(units) + more
    bits = assign(noise, sizes, limit)
    assert cost(bits, sizes) <= limit
    assert all(b in options for b, options in zip(bits, noise, strict=True))


@given(UNITS, st.floats(0, 10_000), st.floats(0, 10_000))
def test_more_budget_never_gives_fewer_bits(units, more: float, extra: float) -> None:
    sizes, noise = [u[0] for u in units], [u[1] for u in units]
    limit = least(units) + more
    few, many = (assign(noise, sizes, limit + e) for e in (0, extra))
    assert cost(few, sizes) <= cost(many, sizes)


@given(UNITS)
def test_bits_that_save_nothing_are_not_spent(units) -> None:
    sizes, noise = [u[0] for u in units], [u[1] for u in units]
    bits = assign(noise, sizes, float("inf"))
    for chosen, options in zip(bits, noise, strict=True):
        assert options[chosen] == min(options.values())


def test_the_layer_that_gains_most_comes_first() -> None:
    noise = [{2: 1.0, 4: 0.1, 8: 0.0}, {2: 5.0, 4: 0.1, 8: 0.0}]
    assert assign(noise, [100, 100], 600) == (2, 4)
    assert assign(noise, [100, 1000], 2500) == (4, 2)
    assert assign(noise, [100, 100], 800) == (4, 4)


def test_a_step_is_judged_over_its_whole_length() -> None:
    """4 bits are no better than 2, 8 are: the way leads past 4."""
    noise = [{2: 1.0, 4: 1.0, 8: 0.0}, {2: 0.3, 4: 0.2, 8: 0.2}]
    assert assign(noise, [100, 100], 1000) == (8, 2)


@given(UNITS, st.floats(0, 5_000))
def test_no_single_step_that_helps_is_left(units, more: float) -> None:
    sizes, noise = [u[0] for u in units], [u[1] for u in units]
    limit = least(units) + more
    bits = assign(noise, sizes, limit)
    left = limit - cost(bits, sizes)
    wasted = [
        (i, to)
        for i, (b, options) in enumerate(zip(bits, noise, strict=True))
        for to in options
        if to > b and options[to] < options[b] and sizes[i] * (to - b) <= left
    ]
    assert not wasted, list(itertools.islice(wasted, 3))


def test_budgets() -> None:
    assert budget_of(None, None) is None
    assert budget_of(5, None) == Budget(mean_bits=5)
    assert Budget(mean_bits=2.5).limit([10, 30]) == 100
    assert Budget(weight_bytes=10).limit([10, 30]) == 80
    with pytest.raises(UsageError, match="one budget"):
        budget_of(5, 100)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="no budget"):
            budget_of(wrong, None)


def test_a_budget_that_cannot_be_met_says_what_could() -> None:
    with pytest.raises(UsageError, match="need") as error:
        check_budgets([Budget(mean_bits=1.5)], [100, 300], [2, 8])
    assert error.value.hint == "the least is 325 bytes, 6.5 bits on average"
    check_budgets([Budget(weight_bytes=325)], [100, 300], [2, 8])
    with pytest.raises(UsageError, match="no layers with weights"):
        check_budgets([Budget(mean_bits=4)], [], [])
