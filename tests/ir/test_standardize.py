"""Standardization of codes: its formula in whole numbers, and how near it is to the real one."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from qgraph.errors import ExactnessError, GraphError
from qgraph.ir.ops import OPS
from qgraph.ir.ops.standardize import (
    Standardization,
    StandardizationAttrs,
    result_spec,
    standardization,
    standardized,
    widest_input,
)
from qgraph.ir.types import Fixed, QuantSpec, TensorType

DRAWN = (
    st.data(),
    st.integers(2, 16),  # bits of the input
    st.booleans(),
    st.sampled_from([16, 16, 12, 8, 4]),  # bits of the result
    st.integers(-10, 24),  # exponent of the input
    st.sampled_from([0.0, 1e-12, 1e-6, 1e-5, 1e-3, 0.3]),
)


def attrs_of(
    bits: int, made: int, epsilon: float, channels: int, signed: bool = True
) -> StandardizationAttrs:
    spec = result_spec(QuantSpec(made, True, "internal"), channels)
    domain = QuantSpec(bits, signed, "internal")
    return StandardizationAttrs(epsilon=epsilon, domain=domain, spec=spec)


def drawn(data, bits, signed, made, exponent, epsilon) -> tuple:
    """Attributes, codes of one row, and the numbers of the layer."""
    domain = QuantSpec(bits, signed, "internal")
    ends = st.sampled_from([domain.lo, domain.hi, 0, 1])
    code = st.one_of(ends, st.integers(domain.lo, domain.hi))
    codes = data.draw(st.lists(code, min_size=1, max_size=40))
    attrs = attrs_of(bits, made, epsilon, len(codes), signed)
    try:
        return attrs, codes, standardization(attrs, len(codes), exponent)
    except ExactnessError:
        assume(False)


def in_whole_numbers(codes: list[int], numbers: Standardization) -> list[int]:
    """The formula of docs/numerics.md, in Python's integers."""
    count, total = len(codes), sum(codes)
    square = (count * sum(c * c for c in codes) - total**2) * 4**numbers.guard + numbers.epsilon
    root = math.isqrt(square) + 1
    assert square < 2**52
    return [((count * c - total) * 2 ** (numbers.shift + 1) + root) // (2 * root) for c in codes]


@settings(max_examples=150)
@given(*DRAWN)
def test_codes_are_those_of_the_formula(data, bits, signed, made, exponent, epsilon):
    attrs, codes, numbers = drawn(data, bits, signed, made, exponent, epsilon)
    found = OPS["standardize"].integer(attrs, [Fixed(np.array([codes, codes[::-1]]), exponent)])
    assert found.codes[0].tolist() == in_whole_numbers(codes, numbers)
    assert found.codes[1].tolist() == found.codes[0][::-1].tolist()
    assert found.exponent == attrs.spec.exponent == numbers.shift - numbers.guard


@settings(max_examples=150)
@given(*DRAWN)
def test_off_by_no_more_than_half_a_step_and_the_guard(data, bits, signed, made, exponent, epsilon):
    attrs, codes, numbers = drawn(data, bits, signed, made, exponent, epsilon)
    found = standardized(np.array(codes), numbers)
    assert np.abs(found).max() <= attrs.spec.hi
    count, total = len(codes), sum(codes)
    unit = Fraction(2) ** (2 * exponent)
    square = count * sum(c * c for c in codes) - total**2 + Fraction(epsilon) * count**2 * unit
    if len(set(codes)) == 1:
        assert not found.any()
        return
    far = 2**120  # digits of the root that it is compared with
    root = Fraction(math.isqrt(int(square * far)), math.isqrt(far))
    step = Fraction(2) ** -attrs.spec.exponent
    for code, result in zip(codes, found.tolist(), strict=True):
        off = abs(result * step - (count * code - total) / root)
        assert off <= step / 2 + Fraction(5, 4) * Fraction(1, 2**numbers.guard)


@pytest.mark.parametrize("channels", [2, 3, 5, 17, 64, 65, 255, 256, 257, 1024, 4096])
@pytest.mark.parametrize("made", [16, 8])
def test_the_farthest_result_fits_and_the_scale_is_the_finest(channels, made):
    bits = min(16, widest_input(channels))
    attrs = attrs_of(bits, made, 0.0, channels)
    codes = np.full((2, channels), attrs.domain.lo)
    codes[0, 0], codes[1, :-1] = attrs.domain.hi, attrs.domain.hi
    found = standardized(codes, standardization(attrs, channels, 0))
    reach = math.sqrt(channels - 1) * 2**attrs.spec.exponent
    assert abs(found[0, 0] - reach) <= 1 and abs(found[1, -1] + reach) <= 1
    assert attrs.spec.lo <= found.min() and found.max() <= attrs.spec.hi < 2 * reach + 1


@pytest.mark.parametrize("epsilon", [0.0, 1e-5])
def test_rows_without_a_difference_are_0(epsilon):
    rows = np.arange(-128, 128)[:, None].repeat(7, axis=1)
    attrs = attrs_of(8, 16, epsilon, 7)
    assert not standardized(rows, standardization(attrs, 7, 4)).any()
    assert not standardized(rows[:, :1], standardization(attrs_of(8, 16, epsilon, 1), 1, 4)).any()
    floats = OPS["standardize"].evaluate(attrs, [rows.astype(np.float32)])
    assert floats.dtype == np.float32 and not floats.any()


def test_the_float_rule_is_within_a_step_of_the_integer_rule():
    codes = np.random.default_rng(0).integers(-30000, 30000, (50, 3, 96))
    attrs = attrs_of(16, 16, 1e-5, 96)
    found = OPS["standardize"].integer(attrs, [Fixed(codes, 11)])
    floats = OPS["standardize"].evaluate(attrs, [np.ldexp(codes, -11).astype(np.float32)])
    assert np.abs(np.ldexp(floats, found.exponent) - found.codes).max() <= 1


def test_what_does_not_fit_is_refused():
    attrs = attrs_of(16, 16, 1e-3, 64)
    assert standardization(attrs, 64, 20).epsilon
    with pytest.raises(ExactnessError, match="52 bits") as caught:
        standardization(attrs, 64, 40, "norm")
    assert caught.value.node == "norm" and caught.value.hint
    with pytest.raises(ExactnessError, match="scale for each channel"):
        standardization(attrs, 64, np.array([3] * 64))
    for shape in (None, (), (2, None)):
        with pytest.raises(GraphError, match="known channels"):
            OPS["standardize"].types(attrs, [TensorType("float32", shape)])
