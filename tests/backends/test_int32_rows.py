"""Softmax and layer norm in int32 ops equal the program's, whatever a target's errors are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.backends.int32_rows import Int32Rows
from qgraph.backends.int32_values import INT32_MAX, Int32Op, Int32Value
from qgraph.backends.long_numbers import LongNumbers
from qgraph.errors import UnsupportedError
from qgraph.program.ops import OPS, Operand, SoftmaxProgramAttrs, StandardizeAttrs
from tests.helpers.int32_in_numpy import NumpyInt32

FLOAT_SUMS = (1 << 24) - 1
SPANS = {"int4": (-8, 7), "int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
WRITERS = st.builds(
    NumpyInt32, st.sampled_from([-1, -0.6, 0, 0.6, 1]), st.sampled_from([FLOAT_SUMS, INT32_MAX])
)


def rows_of(span, count: int, seed: int) -> np.ndarray:
    """Random rows, and rows of the ends of the span."""
    rng, (low, high) = np.random.default_rng(seed), span
    rows = rng.integers(low, high + 1, (40, count))
    rows[:2] = [[low], [high]]
    rows[2] = rng.choice(span, count)
    rows[3:5] = [[low], [high]]
    rows[3, 0], rows[4, 0] = high, low
    rows[5] = np.arange(count) < count // 2
    rows[5] = np.where(rows[5], low, high)
    rows[6:12] = np.clip(rows[6:12] >> 3, low, high)
    return rows


def value_of(rows: np.ndarray, span) -> Int32Value:
    return Int32Value(rows, *span)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(SPANS)), st.sampled_from([1, 2, 3, 7, 16, 64, 200, 768, 4096]),
    st.integers(0, 25), st.integers(-26, 12), st.integers(0, 50), st.booleans(), WRITERS,
    st.integers(0, 99),
)  # fmt: skip
def test_layer_norms(span, count, guard, above, epsilon, any_epsilon, writer, seed) -> None:
    span = SPANS[span]
    largest = count * max(-span[0], span[1])
    room = 25 - largest.bit_length()
    if room < 0:
        return
    guard = min(guard, room)
    attrs = StandardizeAttrs(
        guard=guard, epsilon=(1 << epsilon) * any_epsilon, shift=max(guard + above, 0)
    )
    rows = rows_of(span, count, seed)
    limit = OPS["standardize"].reach(attrs, [Operand(rows.shape, *span, span[1], None)]).high
    wanted = OPS["standardize"].compute(attrs, [rows])
    if limit > 1 << 15:
        with pytest.raises(UnsupportedError, match="rows: needs numbers up to"):
            Int32Rows(writer).standardize(value_of(rows, span), count, attrs, limit)
        return
    found = Int32Rows(writer).standardize(value_of(rows, span), count, attrs, limit)
    np.testing.assert_array_equal(found.held, wanted)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(SPANS)), st.sampled_from([1, 2, 7, 64, 500]),
    st.sampled_from([1, 9, 200, 1 << 16]), st.sampled_from([0.002, 0.1, 1.0]),
    st.integers(0, 16), st.booleans(), WRITERS, st.integers(0, 99),
)  # fmt: skip
def test_softmaxes(span, count, entries, slope, bits, below, writer, seed) -> None:
    span = SPANS[span]
    table = np.rint(np.ldexp(np.exp(-np.arange(entries) * slope), 15)).astype(np.int64)
    attrs = SoftmaxProgramAttrs(bits=bits, high=(1 << bits) - below)
    rows = rows_of(span, count, seed)
    largest = value_of(rows.max(-1, keepdims=True), span)
    found = Int32Rows(writer).softmax(value_of(rows, span), largest, table, count, attrs)
    np.testing.assert_array_equal(found.held, OPS["softmax"].compute(attrs, [rows, table]))


def test_long_quotients_that_exceed_32_bits_are_refused_by_name() -> None:
    table, attrs = np.array([1 << 15]), SoftmaxProgramAttrs(bits=32, high=1 << 32)
    rows = np.zeros((1, 700), np.int64)
    with pytest.raises(UnsupportedError, match="rows: needs numbers up to"):
        Int32Rows(NumpyInt32()).softmax(
            value_of(rows, (0, 1)), value_of(rows[:, :1], (0, 1)), table, 700, attrs
        )


@settings(max_examples=200)
@given(
    st.lists(st.integers(-INT32_MAX, INT32_MAX), min_size=1, max_size=5),
    st.integers(1, INT32_MAX), st.integers(0, 30),
)  # fmt: skip
def test_division_rounds_down(numbers, divisor: int, bits: int) -> None:
    writer, a = NumpyInt32(), np.array(numbers)
    value, by = Int32Value(a, int(a.min()), int(a.max())), Int32Value(np.array(divisor), 1, divisor)
    np.testing.assert_array_equal(writer.floor(value, by).held, a // divisor)
    try:
        np.testing.assert_array_equal(writer.shifted(value, bits).held, a >> bits)
    except UnsupportedError:  # numbers near the ends of int32
        assert a.min() < -INT32_MAX + (1 << bits)


@given(st.dictionaries(st.integers(0, 4), st.integers(-(1 << 29), 1 << 29), min_size=1))
def test_carried_digits_are_small(numbers) -> None:
    writer = NumpyInt32()
    digits = {p: Int32Value(np.array(n), -(1 << 29), 1 << 29) for p, n in numbers.items()}
    carried = LongNumbers(writer).carried(digits)
    whole = sum(int(d.held) << 13 * p for p, d in carried.items())
    assert whole == sum(n << 13 * p for p, n in numbers.items())
    assert all(0 <= d.low <= d.high < 1 << 13 for p, d in carried.items() if p < max(carried))


def test_a_wrong_op_is_found(monkeypatch) -> None:
    """The comparison of layer norms can fail."""
    rows, span = rows_of(SPANS["int8"], 16, 0), SPANS["int8"]
    attrs = StandardizeAttrs(guard=14, epsilon=100, shift=18)
    write = NumpyInt32.write

    def wrong(self, op, a, b):
        return write(self, op, a, b) + (op is Int32Op.DIVIDE)

    monkeypatch.setattr(NumpyInt32, "write", wrong)
    monkeypatch.setattr("tests.helpers.int32_in_numpy.checked", lambda value: value)
    found = Int32Rows(NumpyInt32()).standardize(value_of(rows, span), 16, attrs, 62)
    assert (found.held != OPS["standardize"].compute(attrs, [rows])).any()
