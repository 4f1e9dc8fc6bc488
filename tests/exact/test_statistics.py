"""Statistics of the inputs of quantizers, counted in chunks and kept in few bins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.exact.statistics import joined, statistics_of
from qgraph.ir.types import QuantSpec

U8 = QuantSpec(8, False, "activation", 8)
S8 = QuantSpec(8, True, "activation", 7)

floats = st.floats(-100, 100, width=32).map(lambda v: v if abs(v) > 1e-30 else 0.0)
floats |= st.sampled_from([1.0, 2.0, -1.0, -4.0, 0.5])  # on edges
lists = st.lists(floats, min_size=1, max_size=30)


@given(st.lists(lists, min_size=1, max_size=4))
def test_chunks_count_as_one(chunks):
    whole = statistics_of(np.array([v for c in chunks for v in c], "float32"), S8)
    parts = joined([statistics_of(np.array(c, "float32"), S8) for c in chunks])
    assert parts.histogram.counts.tolist() == whole.histogram.counts.tolist()
    for name in ("elements", "below", "above", "vanished"):
        assert getattr(parts, name) == getattr(whole, name)
    for name in ("zeros", "low", "high", "power"):
        assert getattr(parts.histogram, name) == getattr(whole.histogram, name)


@given(lists, st.integers(1, 64))
def test_few_bins_hold_every_element_where_it_is(values, most):
    values = np.array(values, "float32")
    first, log2_width, counts = statistics_of(values, S8).few_bins(max(most, 2))
    assert len(counts) <= max(most, 2) and sum(counts) == np.count_nonzero(values)
    index = np.floor(np.ldexp(values[values != 0].astype("float64"), -log2_width)).astype(int)
    assert np.bincount(index - first, minlength=len(counts)).tolist() == counts


def test_clipped_is_what_moves_by_more_than_a_step():
    found = statistics_of(np.array([0, 0.5, 255 / 256, 1.0, 1.001, 3, -0.001, -1], "float32"), U8)
    assert (found.below, found.above, found.elements, found.histogram.zeros) == (1, 2, 8, 1)
    found = statistics_of(np.array([-1, -1.001, -1.02, 1.0, 1.01], "float32"), S8)
    assert (found.below, found.above) == (1, 1)


def test_vanished_is_what_rounds_to_zero():
    found = statistics_of(np.array([0, 0.001, -0.001, 0.0039, 0.0041, 1], "float32"), S8)
    assert (found.vanished, found.histogram.zeros) == (3, 1)


def test_clipping_per_channel_is_against_each_channels_own_threshold():
    spec = QuantSpec(8, True, "weight", (7, 5), per_channel=True)
    weights = np.array([[0.5, 0.5], [2.0, 2.0], [-2.0, -9.0]], "float32")
    found = statistics_of(weights, spec)
    assert (found.below, found.above) == (2, 1)


@pytest.mark.parametrize("values", [[], [np.nan, 1], [np.inf]])
def test_what_has_no_statistics(values):
    assert statistics_of(np.array(values, "float32"), U8) is None


def test_what_a_quantizer_leaves_on_its_own():
    values = np.random.default_rng(0).normal(0, 0.2, 20_000).astype("float32")
    found = statistics_of(values, S8)
    for exponent in (4, 7, 8):
        codes = np.clip(np.rint(np.ldexp(values, exponent)), -128, 127)
        noise = ((np.ldexp(codes, -exponent) - values) ** 2).sum()
        exact = 10 * np.log10((values**2).sum() / noise)
        assert found.sqnr(S8, exponent) == pytest.approx(exact, abs=0.1)
    assert found.max_exponent(S8) == 7 - np.ceil(np.log2(np.abs(values).max()))


def test_zeros_alone():
    found = statistics_of(np.zeros(5, "float32"), U8)
    assert found.few_bins() == (0, 0, []) and found.histogram.zeros == 5
    assert found.sqnr(U8, 8) == np.inf
