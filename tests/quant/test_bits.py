"""Assignment of bits to layers: its laws, and budgets that cannot be met."""

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


def total(noise, bits) -> float:
    return sum(options[b] for b, options in zip(bits, noise, strict=True))


@given(UNITS, st.floats(0, 10_000), st.floats(0, 10_000))
def test_more_budget_never_leaves_more_noise(units, more: float, extra: float) -> None:
    sizes, noise = [u[0] * 5000 for u in units], [u[1] for u in units]  # past the grid
    limit = 5000 * (least(units) + more)
    few, many = (assign(noise, sizes, limit + e) for e in (0, 5000 * extra))
    assert total(noise, many) <= total(noise, few) + 1e-9


@given(UNITS, st.floats(0, 10_000))
def test_small_sizes_get_the_best_there_is(units, more: float) -> None:
    sizes, noise = [u[0] % 50 + 1 for u in units], [u[1] for u in units]
    limit = cost([min(n) for n in noise], sizes) + more / 50
    ways = [w for w in itertools.product(*noise) if cost(w, sizes) <= limit]
    best = min(total(noise, way) for way in ways)
    assert total(noise, assign(noise, sizes, limit)) == pytest.approx(best, abs=1e-9)


@given(UNITS)
def test_bits_that_save_nothing_are_not_spent(units) -> None:
    sizes, noise = [u[0] for u in units], [u[1] for u in units]
    bits = assign(noise, sizes, float("inf"))
    for chosen, options in zip(bits, noise, strict=True):
        assert options[chosen] == pytest.approx(min(options.values()), abs=1e-9)


def test_the_layer_that_gains_most_comes_first() -> None:
    noise = [{2: 1.0, 4: 0.1, 8: 0.0}, {2: 5.0, 4: 0.1, 8: 0.0}]
    assert assign(noise, [100, 100], 600) == (2, 4)
    assert assign(noise, [100, 1000], 2500) == (4, 2)
    assert assign(noise, [100, 100], 800) == (4, 4)


def test_a_step_is_judged_over_its_whole_length() -> None:
    """Weights of 4 bits gain nothing over 2 bits, and 8 bits do: the search must try 8 after 4."""
    noise = [{2: 1.0, 4: 1.0, 8: 0.0}, {2: 0.3, 4: 0.2, 8: 0.2}]
    assert assign(noise, [100, 100], 1000) == (8, 2)


def test_one_large_layer_is_worth_many_small_ones() -> None:
    noise = [{2: 0.6, 8: 0.01}, *({2: 0.05, 8: 0.02, 16: 0.0} for _ in range(10))]
    assert assign(noise, [1000, *[50] * 10], 9000) == (8, *[2] * 10)


def test_budgets() -> None:
    assert budget_of(None, None) is None
    assert budget_of(5, None) == Budget(mean_bits=5)
    assert Budget(mean_bits=2.5).limit([10, 30]) == 100
    assert Budget(weight_bytes=10).limit([10, 30]) == 80
    with pytest.raises(UsageError, match="two weight budgets"):
        budget_of(5, 100)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="not a valid weight budget"):
            budget_of(wrong, None)


def test_a_budget_that_cannot_be_met_names_the_smallest_one() -> None:
    with pytest.raises(UsageError, match="too small for") as error:
        check_budgets([Budget(mean_bits=1.5)], [100, 300], [2, 8])
    assert error.value.hint == "the smallest budget is 325 bytes, 6.5 bits on average"
    check_budgets([Budget(weight_bytes=325)], [100, 300], [2, 8])
    with pytest.raises(UsageError, match="no layers with weights"):
        check_budgets([Budget(mean_bits=4)], [], [])
