"""Methods for thresholds, on distributions whose best scale is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import CalibrationError
from qgraph.ir.types import QuantSpec
from qgraph.numerics import fake_quantize
from qgraph.quant.thresholds import (
    COSTLY,
    COSTLY_RARE,
    FINER_EXPONENTS,
    METHODS,
    RARE,
    Distribution,
    choose_exponent,
    histogram_of,
    range_of,
)

S8, U8, S4 = (QuantSpec(b, s, "activation") for b, s in ((8, True), (8, False), (4, True)))
RNG = np.random.default_rng(0)
LAPLACE = RNG.laplace(0, 0.05, 20_000).astype(np.float32)
OUTLIERS = np.concatenate([LAPLACE, np.float32([7.5, -6])])
UNIFORM = RNG.uniform(-1, 1, 20_000).astype(np.float32)
HALF_ZEROS = np.maximum(RNG.normal(size=20_000), 0).astype(np.float32)


def choose(x, spec: QuantSpec, method: str) -> int:
    chunks = np.array_split(np.asarray(x, np.float32), 3)
    extremes = range_of(chunks, "t")
    return choose_exponent(Distribution(extremes, histogram_of(chunks, *extremes)), spec, method)


def error(x, spec: QuantSpec, exponent: int) -> float:
    return float(
        ((fake_quantize(x, spec.with_exponent(exponent)) - x).astype(np.float64) ** 2).sum()
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("spec", [S8, U8, S4], ids=str)
def test_a_uniform_distribution_is_not_clipped(method, spec):
    x = UNIFORM if spec.signed else np.abs(UNIFORM)
    assert choose(x, spec, method) == spec.bits - spec.signed


def test_outliers_are_clipped_where_that_pays():
    """In 8 bits the squared error of two clipped outliers is more than all others save."""
    exponents = {s: {m: choose(OUTLIERS, s, m) - s.bits + 1 for m in METHODS} for s in (S8, S4)}
    assert exponents[S8]["max"] == exponents[S4]["max"] == exponents[S8]["mse"] == -3
    assert exponents[S4]["mse"] > -3
    assert exponents[S8]["percentile"] == exponents[S4]["percentile"] == 0
    assert min(exponents[S8]["kl_j"], exponents[S4]["kl_j"]) >= 0


@pytest.mark.parametrize(
    ("largest", "exponent"), [(1.0, 7), (1.001, 6), (0.5, 8), (2.0**-20, 27), (3e4, -8)]
)
def test_max_is_the_power_of_two_above(largest, exponent):
    assert choose([0.1 * largest, -largest], S8, "max") == exponent
    assert choose([0.1 * largest, largest], U8, "max") == exponent + 1


def test_percentile_keeps_all_but_one_in_ten_thousand():
    x = np.concatenate([np.full(99_995, 0.9), np.full(5, 100.0)])
    assert choose(x, S8, "percentile") == 7
    x[-11:] = 100.0
    assert choose(x, S8, "percentile") == 0


@settings(max_examples=30)
@given(
    st.sampled_from(["normal", "laplace", "uniform", "relu", "outliers"]),
    st.integers(-20, 20), st.sampled_from([S8, S4, QuantSpec(6, True, "activation")]),
)  # fmt: skip
def test_mse_finds_the_least_squared_error(kind, power, spec):
    x = {
        "normal": RNG.normal(size=4096), "laplace": RNG.laplace(size=4096),
        "uniform": UNIFORM[:4096], "relu": HALF_ZEROS[:4096], "outliers": OUTLIERS[-4096:],
    }[kind]  # fmt: skip
    x = np.ldexp(x, power).astype(np.float32)
    coarsest = choose(x, spec, "max")
    costs = {e: error(x, spec, e) for e in range(coarsest, coarsest + FINER_EXPONENTS + 1)}
    assert costs[choose(x, spec, "mse")] <= 1.02 * min(costs.values())


@pytest.mark.parametrize("method", METHODS)
def test_scaling_by_two_moves_the_exponent_by_one(method):
    for x in (LAPLACE, OUTLIERS, HALF_ZEROS):
        exponents = [choose(np.ldexp(x, n), S8, method) for n in (-9, 0, 1, 14)]
        assert exponents == [exponents[1] + 9, exponents[1], exponents[1] - 1, exponents[1] - 14]


@pytest.mark.parametrize("method", METHODS)
def test_order_and_chunks_do_not_matter(method):
    shuffled = RNG.permutation(OUTLIERS)
    extremes = range_of([OUTLIERS], "t")
    whole = choose_exponent(Distribution(extremes, histogram_of([OUTLIERS], *extremes)), S8, method)
    assert choose(shuffled, S8, method) == whole


@pytest.mark.parametrize("method", METHODS)
def test_zeros_have_the_scale_of_one(method):
    assert choose(np.zeros(9), S8, method) == 7
    assert choose(np.zeros(9), U8, method) == 8


@pytest.mark.parametrize("value", [1.0, -1.0, 0.5, 8.0, 0.9, 5.0])
@pytest.mark.parametrize("method", ["kl_j", "mse", "percentile", "max"])
@pytest.mark.parametrize("spec", [S8, S4])
def test_masks_of_one_value_are_not_clipped_away(value, method, spec):
    x = np.where(RNG.random(5000) < 0.3, value, 0.0)
    step = 2.0 ** -choose(x, spec, method)
    assert abs(np.clip(np.rint(value / step), spec.lo, spec.hi) * step - value) <= step


@pytest.mark.parametrize("method", METHODS)
def test_few_values(method):
    assert choose([0.75], S8, method) == 7
    assert choose([0, 0, -0.5], S8, method) in (7, 8)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_names_the_tensor(value):
    x = UNIFORM.copy()
    x[1234] = value
    with pytest.raises(CalibrationError, match="conv/q8: NaN or infinite"):
        range_of(np.array_split(x, 5), "conv/q8")


def test_nothing_at_all():
    with pytest.raises(CalibrationError, match="t: has no elements"):
        range_of([np.zeros((0, 3), np.float32)], "t")


def spiked(where: float, share: float, low: float, high: float) -> np.ndarray:
    """Uniform numbers, of which `share` are exactly `where`."""
    x = RNG.uniform(low, high, 4096)
    x[RNG.random(4096) < share] = where
    return x


def two_clusters(far: float, share: float) -> np.ndarray:
    near = RNG.normal(0.05, 0.01, 4096)
    return np.where(RNG.random(4096) < share, RNG.normal(far, 0.02 * far, 4096), near)


def sparse(share: float, noise: float) -> np.ndarray:
    """Numbers up to 1 in so many places, noise of that size (or zeros) elsewhere."""
    x = np.abs(RNG.normal(0, noise, 4096))
    x[RNG.random(4096) < share] = RNG.uniform(0.5, 1)
    return x


SHARES = st.floats(0.001, 0.999)
FAMILIES = st.one_of(
    st.builds(spiked, st.floats(-1, 1), SHARES, st.just(-1.0), st.just(1.0)),
    st.builds(spiked, st.sampled_from([1.0, 0.5, 0.3, 0.0]), SHARES, st.just(0.0), st.just(1.0)),
    st.builds(two_clusters, st.floats(0.1, 100), SHARES),
    st.builds(sparse, SHARES, st.sampled_from([0.0, 1e-6, 1e-3, 0.1])),
    st.builds(lambda a, b: np.full(500, a) + b * RNG.random(500), st.floats(0.01, 9), SHARES),
    st.builds(lambda a: np.full(500, a), st.floats(0.01, 9)),
    st.builds(lambda a: np.full(500, -a), st.floats(0.01, 9)),
    st.builds(lambda sigma: RNG.lognormal(0, sigma, 4096), st.floats(0, 3)),
    st.builds(lambda sigma: -RNG.lognormal(0, sigma, 4096), st.floats(0, 3)),
)


@settings(max_examples=150)
@given(FAMILIES, st.sampled_from([8, 6, 4]), st.integers(-60, 60))
def test_kl_j_never_clips_at_the_cost_of_the_tensor(x, bits, power):
    """At most 6 dB below the better of MSE and MAX, or 12 dB where it clips next to nothing."""
    x = np.ldexp(x, power).astype(np.float32)
    spec = QuantSpec(bits, bool((x < 0).any()), "activation")
    errors = {m: error(x, spec, choose(x, spec, m)) for m in ("kl_j", "mse", "max")}
    exponent, peak = choose(x, spec, "kl_j"), float(np.abs(x).max())
    past = (x > np.ldexp(spec.hi + 1.0, -exponent)) | (x < np.ldexp(spec.lo - 1.0, -exponent))
    limit = COSTLY_RARE if past.sum() <= RARE * (x != 0).sum() else COSTLY
    chance = x.size * (peak * 2.0**-11) ** 2  # histograms know numbers to half a bin
    assert errors["kl_j"] <= 1.1 * limit * min(errors["mse"], errors["max"]) + limit * chance


@pytest.mark.parametrize("method", METHODS)
def test_pages_of_text_are_not_clipped(method):
    """White is exactly 1 in 88 of 100 pixels, ink has any value: all methods keep both."""
    x = np.ones(20_000, np.float32)
    ink = RNG.random(x.size) < 0.12
    x[ink] = np.clip(RNG.beta(0.4, 0.4, ink.sum()), 0, 1)
    for spec, inverted in ((U8, x), (U8, 1 - x), (S8, x - 1), (S4, 2 * x - 1)):
        assert choose(inverted, spec, method) == choose(inverted, spec, "max")


def test_kl_j_still_clips_the_tail_of_a_heavy_distribution():
    x = np.random.default_rng(0).standard_t(3, 20_000)
    assert choose(x, S4, "kl_j") > choose(x, S4, "max") + 1


@pytest.mark.parametrize("method", METHODS)
def test_no_exponent_past_the_last_is_tried(method):
    """Finer ones would clip more, but no scale has them."""
    x = np.ldexp(np.float32([*LAPLACE, *LAPLACE, 1]), -117)
    assert choose(x, S4, method) <= 126
