"""Softmax of codes: its formula in whole numbers, and how near it is to the real one."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import GraphError
from qgraph.ir.ops import OPS
from qgraph.ir.ops.integer_softmax import (
    EXPONENTIAL_BITS,
    IntegerSoftmaxAttrs,
    exponentials,
    real_softmax,
    softmax_spec,
)
from qgraph.ir.types import Fixed, QuantSpec, TensorType
from qgraph.train.softmax import COARSEST, all_exponentials

DRAWN = (
    st.data(),
    st.integers(2, 10),  # bits of the input
    st.booleans(),
    st.integers(4, 16),  # bits of the result
    st.integers(-8, 30),  # exponent of the input
)


def drawn(data, bits: int, signed: bool, made: int) -> tuple[IntegerSoftmaxAttrs, list[int]]:
    domain = QuantSpec(bits, signed, "activation")
    ends = st.sampled_from([domain.lo, domain.hi, 0, 1])
    code = st.one_of(ends, st.integers(domain.lo, domain.hi))
    codes = data.draw(st.lists(code, min_size=1, max_size=40))
    spec = softmax_spec(QuantSpec(made, True, "internal"))
    return IntegerSoftmaxAttrs(domain=domain, spec=spec), codes


def found_codes(attrs: IntegerSoftmaxAttrs, codes: list[int], exponent: int) -> list[int]:
    found = OPS["integer_softmax"].integer(attrs, [Fixed(np.array([codes, codes[::-1]]), exponent)])
    assert found.exponent == attrs.spec.exponent == attrs.spec.bits - 1
    assert found.codes[1].tolist() == found.codes[0][::-1].tolist()
    return found.codes[0].tolist()


@settings(max_examples=150)
@given(*DRAWN)
def test_codes_are_those_of_the_formula(data, bits, signed, made, exponent):
    attrs, codes = drawn(data, bits, signed, made)
    exact = [math.exp(-(max(codes) - code) / 2.0**exponent) * 2**EXPONENTIAL_BITS for code in codes]
    entries = [round(e) for e in exact]  # ties to even, as in the table
    total, bits = sum(entries), attrs.spec.exponent
    wanted = [min((e * 2**bits + total // 2) // total, attrs.spec.hi) for e in entries]
    assert found_codes(attrs, codes, exponent) == wanted


@settings(max_examples=150)
@given(*DRAWN)
def test_off_by_no_more_than_half_a_step_and_the_table(data, bits, signed, made, exponent):
    attrs, codes = drawn(data, bits, signed, made)
    real = real_softmax(np.ldexp(np.array(codes, np.float64), -exponent))
    step = 2.0**-attrs.spec.exponent
    found = step * np.array(found_codes(attrs, codes, exponent), np.float64)
    of_table = (0.5 + 0.5 * len(codes) * real) / 2**EXPONENTIAL_BITS
    clipped = np.where(real > 1 - step, step, 0)  # 1 has no code
    assert (np.abs(found - real) <= step / 2 + 1.01 * of_table + clipped).all()


@pytest.mark.parametrize("exponent", range(COARSEST - 3, 40))
def test_tables_of_training_are_those_of_inference(exponent):
    domain = QuantSpec(8, True, "activation")
    tables, entries = all_exponentials(domain), exponentials(domain, exponent)
    row = tables[min(max(exponent - COARSEST, 0), len(tables) - 1)]
    assert row[: len(entries)].tolist() == entries.tolist() and not row[len(entries) :].any()


def test_what_has_no_channels_is_refused():
    spec = softmax_spec(QuantSpec(16, True, "internal"))
    attrs = IntegerSoftmaxAttrs(domain=QuantSpec(8, True, "activation"), spec=spec)
    with pytest.raises(GraphError, match="needs floats with channels"):
        OPS["integer_softmax"].types(attrs, [TensorType("float32", ())])
