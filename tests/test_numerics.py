"""The arithmetic: laws, and the quantizer against vectors made elsewhere."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph import numerics
from qgraph.errors import ExactnessError
from qgraph.ir.types import ROUNDINGS, Fixed, QuantSpec, rounding_of_numbers
from qgraph.kernels.rounding import round_numbers
from qgraph.numerics import fake_quantize, quantized_constant
from tests.helpers.exponents import exponent_of
from tests.helpers.vectors import vector_file

BITS = st.integers(2, 16)
CODES = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=20)
FLOATS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20)


def exact_round(numerator: int, shift: int, rounding: str) -> int:
    """`numerator / 2^shift` rounded, in Python integers, by the definition of each mode."""
    if shift <= 0:
        return numerator << -shift
    if rounding == "double":
        return exact_round(exact_round(numerator, 1, "half_up"), shift - 1, "half_away")
    low, rest = divmod(numerator, 1 << shift)
    half = 1 << (shift - 1)
    if rounding == "floor" or rest < half:
        return low
    if rest > half:
        return low + 1
    return {
        "half_up": low + 1,
        "half_even": low + (low & 1),
        "half_away": low + (numerator >= 0),
    }[rounding]


@given(CODES, st.integers(-20, 62), st.sampled_from(ROUNDINGS))
def test_round_shift_is_exact_division(codes: list[int], shift: int, rounding: str) -> None:
    found = numerics.round_shift(np.array(codes), shift, rounding)
    assert found.tolist() == [exact_round(c, shift, rounding) for c in codes]


@given(st.lists(st.integers(-(2**61), 2**61), min_size=1), st.integers(-62, -21))
def test_left_shift_saturates_beyond_64_bits(codes: list[int], shift: int) -> None:
    spec = QuantSpec(32, True, "activation", 0)
    found = numerics.bring_into_range(numerics.round_shift(np.array(codes), shift), spec)
    assert found.tolist() == [min(max(c << -shift, spec.lo), spec.hi) for c in codes]


@given(st.lists(st.integers(-(2**23), 2**23)), st.integers(0, 24), st.sampled_from(ROUNDINGS))
def test_float_rounding_equals_integer_rounding(
    codes: list[int], shift: int, rounding: str
) -> None:
    as_float = np.ldexp(np.array(codes, np.float32), -shift)
    of_numbers = rounding_of_numbers(rounding)
    assert round_numbers(as_float, rounding).tolist() == [
        exact_round(c, shift, of_numbers) for c in codes
    ]


@given(FLOATS, BITS, st.booleans(), st.integers(-10, 20), st.sampled_from(ROUNDINGS))
def test_quantize_twice_is_quantize_once(
    values: list[float], bits: int, signed: bool, exponent: int, rounding: str
) -> None:
    spec = QuantSpec(bits, signed, "activation", exponent, rounding)
    once = numerics.quantize(np.array(values), spec)
    assert once.codes.min() >= spec.lo and once.codes.max() <= spec.hi
    again = numerics.quantize(numerics.dequantize(once), spec)
    assert np.array_equal(once.codes, again.codes)


@given(FLOATS, BITS, st.booleans(), st.integers(-10, 20))
def test_fake_quantize_is_the_value_of_the_code(
    values: list[float], bits: int, signed: bool, exponent: int
) -> None:
    spec = QuantSpec(bits, signed, "activation", exponent)
    x = np.array(values, np.float32)
    exact = numerics.dequantize(numerics.quantize(x, spec)).astype(np.float32)
    assert np.array_equal(numerics.fake_quantize(x, spec), exact)


@given(FLOATS, st.integers(2, 16), st.integers(-5, 12), st.integers(-5, 12))
def test_requantize_equals_quantizing_the_value(
    values: list[float], bits: int, f_in: int, f_out: int
) -> None:
    codes = numerics.quantize(np.array(values), QuantSpec(32, True, "internal", f_in))
    spec = QuantSpec(bits, True, "activation", f_out)
    direct = numerics.quantize(numerics.dequantize(codes), spec)
    assert np.array_equal(numerics.requantize(codes, spec).codes, direct.codes)


@given(st.floats(1e-30, 1e30), BITS, st.booleans())
def test_max_threshold_is_the_ceiling_of_log2(largest: float, bits: int, signed: bool) -> None:
    threshold = 2.0 ** ((bits - signed) - numerics.exponent_for_max(largest, bits, signed))
    assert threshold / 2 < largest <= threshold


@pytest.mark.parametrize(
    ("value", "exponent", "code"), [(1 / 4, 9, 128), (1 / 9, 11, 228), (1, 7, 128)]
)
def test_constants_take_the_finest_scale_that_does_not_clip(
    value: float, exponent: int, code: int
) -> None:
    assert numerics.finest_exponent(value, 8, signed=False) == exponent
    spec = QuantSpec(8, False, "constant", exponent)
    assert numerics.quantize(value, spec).codes == code


def test_wrap_is_modulo() -> None:
    spec = QuantSpec(8, True, "accumulator", 0, overflow="wrap")
    wrapped = numerics.requantize(Fixed(np.array([127, 128, -129, 300]), 0), spec)
    assert wrapped.codes.tolist() == [127, -128, 127, 44]


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(-126, 126),
    st.integers(2, 32), st.booleans(),
)  # fmt: skip
def test_numbers_of_any_size_wrap_exactly(x: float, exponent: int, bits: int, signed: bool) -> None:
    """Against Python's own integers, which have all digits: past 2^53 float64 has none left."""
    spec = QuantSpec(bits, signed, "activation", exponent, overflow="wrap")
    steps = int(np.rint(np.ldexp(x, exponent)))
    wanted = (steps - spec.lo) % 2**bits + spec.lo
    assert int(numerics.quantize(np.array([x]), spec).codes[0]) == wanted
    assert spec.lo <= wanted <= spec.hi
    found = numerics.fake_quantize(np.array([x], np.float32), spec)
    assert found.tolist() == [np.float32(np.ldexp(float(wanted), -exponent))]


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_cannot_wrap(value: float) -> None:
    spec = QuantSpec(8, True, "activation", 3, overflow="wrap")
    with pytest.raises(ExactnessError, match="infinity cannot be wrapped"):
        numerics.quantize(np.array([1.0, value]), spec)


def test_nan_has_no_code_and_infinity_saturates() -> None:
    spec = QuantSpec(8, True, "activation", 3)
    with pytest.raises(ExactnessError, match="NaN"):
        numerics.quantize(np.array([np.nan]), spec)
    assert numerics.quantize(np.array([np.inf, -np.inf]), spec).codes.tolist() == [127, -128]
    assert np.isnan(numerics.fake_quantize(np.array([np.nan], np.float32), spec)).all()


def test_an_exponent_out_of_range_names_the_tensor() -> None:
    with pytest.raises(ExactnessError, match="conv_3"):
        numerics.checked_exponent(127, "conv_3")


def test_quantizer_reproduces_the_vectors() -> None:
    cases = json.loads(vector_file("quantizer.json").read_text())
    for case in cases:
        bits, signed, log2_t = case["bits"], case["signed"], case["log2_t"]
        assert exponent_of(np.float32(log2_t), bits, signed) == case["f"]
        spec = QuantSpec(bits, signed, "activation", case["f"])
        found = numerics.quantize(np.array(case["x"]), spec)
        assert found.codes.tolist() == case["code"]
        assert numerics.dequantize(found).tolist() == case["value"]


@pytest.mark.parametrize("bits", [24, 25, 26, 32])
@pytest.mark.parametrize("signed", [False, True])
def test_constants_of_any_width_end_at_the_last_code(bits, signed):
    """float32 has no 2^25 - 1: past 24 bits codes of constants are float64."""
    spec = QuantSpec(bits, signed, "constant", 0)
    found = quantized_constant(np.array([-1e12, 1e12], np.float32), spec)
    assert found.tolist() == [spec.lo, spec.hi]


def test_one_exponent_for_many_channels_is_that_of_all():
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(6, 4)
    one = QuantSpec(8, True, "weight", (5,), per_channel=True)
    np.testing.assert_array_equal(
        fake_quantize(x, one), fake_quantize(x, QuantSpec(8, True, "weight", 5))
    )
