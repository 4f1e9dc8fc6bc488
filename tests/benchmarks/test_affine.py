"""Equations 13 and 15 of the TQT paper in integers, against exact fractions."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.quantizers.affine import multiplier, multipliers_table, products, rescaled

CODES = st.integers(0, 255)


@given(CODES, CODES, st.integers(0, 2**32 - 1))
def test_cross_terms_make_the_product_of_differences(z1, z2, seed):
    rng = np.random.default_rng(seed)
    q1, q2 = rng.integers(0, 256, (3, 7)), rng.integers(0, 256, (7, 2))
    np.testing.assert_array_equal(products(q1, z1, q2, z2), (q1 - z1) @ (q2 - z2))


def test_without_zero_points_there_are_no_cross_terms():
    """Equation 14."""
    q1, q2 = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(products(q1, 0, q2, 0), q1 @ q2)


@given(st.floats(2.0**-30, 1, exclude_max=True), st.integers(4, 31))
def test_a_multiplier_is_normalized_and_the_nearest(ratio, bits):
    whole, n = multiplier(ratio, bits)
    assert 1 << (bits - 1) <= whole < 1 << bits
    found = Fraction(whole, 1 << bits) / Fraction(2) ** n
    step = Fraction(1, 1 << bits) / Fraction(2) ** n
    assert abs(found - Fraction(ratio)) <= step / 2


@given(st.floats(2.0**-20, 1, exclude_max=True), st.integers(-(2**22), 2**22), st.integers(7, 31))
def test_rescaled_sums_are_near_the_exact_ones(ratio, total, bits):
    found = int(rescaled(np.array([total]), ratio, bits)[0])
    exact = Fraction(total) * Fraction(ratio)
    assert abs(found - exact) <= Fraction(1, 2) + abs(exact) / 2**bits


@given(st.integers(0, 20), st.integers(-(2**22), 2**22))
def test_powers_of_two_need_only_a_shift(shift, total):
    """Equation 16."""
    found = int(rescaled(np.array([total]), 2.0**-shift, 8)[0])
    assert found == round(Fraction(total, 1 << shift))


def test_wide_multipliers_change_few_codes():
    shares = [row["codes that differ"] for row in multipliers_table().rows]
    assert shares == sorted(shares) and shares[0] < 1e-4 < shares[-1]
