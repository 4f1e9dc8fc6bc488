"""The rounding `double`: LiteRT's reference kernels, and every form of a network."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.ir.types import Rounding
from qgraph.numerics import round_shift
from tests.helpers import tflite_convolution
from tests.helpers.drawn_graphs import graphs, profiles
from tests.helpers.every_form import check_every_form
from tests.quant.test_target_keys import FEW

CODES = np.arange(-6000, 6001)


def test_it_rounds_up_once_and_then_away_from_zero() -> None:
    for shift in range(2, 12):
        once = round_shift(CODES, 1, Rounding.HALF_UP)
        twice = round_shift(once, shift - 1, Rounding.HALF_AWAY)
        found = round_shift(CODES, shift, Rounding.DOUBLE)
        np.testing.assert_array_equal(found, twice)
        assert all((found != round_shift(CODES, shift, other)).any() for other in OTHERS)
    np.testing.assert_array_equal(round_shift(CODES, 1, Rounding.DOUBLE), once)
    np.testing.assert_array_equal(round_shift(CODES, 0, Rounding.DOUBLE), CODES)


OTHERS = [rounding for rounding in Rounding if rounding != Rounding.DOUBLE]


@FEW
@given(graphs(), profiles(), st.integers(0, 99))
def test_every_form_of_a_network(graph, profile, seed) -> None:
    check_every_form(graph, replace(profile, rounding=Rounding.DOUBLE), seed)


@pytest.mark.parametrize("shift", [1, 2, 3, 5, 8])
def test_the_reference_kernels_of_litert_round_so(shift: int) -> None:
    rng = np.random.default_rng(shift)
    x = rng.integers(-128, 128, (1, 64, 64, 3)).astype(np.int8)
    w = rng.integers(-128, 128, (1, 1, 3, 16)).astype(np.int8) >> max(6 - shift, 0)
    sums = x.astype(np.int64) @ w[0, 0].astype(np.int64)
    found = tflite_convolution.run(x, w, shift)

    def differ(rounding: Rounding) -> int:
        return int((np.clip(round_shift(sums, shift, rounding), -128, 127) != found).sum())

    assert differ(Rounding.DOUBLE) == 0
    assert all(differ(other) > 0 for other in OTHERS if (shift, other) != (1, Rounding.HALF_UP))
