"""Claims of the TQT paper on threshold gradients and training (sections 3.4 to B.3)."""

import numpy as np
import pytest

from benchmarks.figures.curves import LIMITS, fake_quant, qgraph_quantizer
from benchmarks.figures.gradients import critical, mean_gradients, raw_gradients
from benchmarks.figures.toy import ALPHA, BITS, RULES, SAMPLES, SIGMAS, raw, train

X = np.linspace(-2, 2, 801) + 1e-4  # off the points halfway between codes
BOTH = pytest.mark.parametrize("bits", BITS)


# -- section 3.4: what the gradients mean ----------------------------------------------------------


@pytest.mark.parametrize("signed", [True, False])
def test_clipping_begins_half_a_step_past_the_last_code(signed):
    low, high = (-4, 3) if signed else (0, 7)
    step = 1 / 4 if signed else 1 / 8
    inside = np.clip(X, step * (low - 0.5), step * (high + 0.5)) == X
    np.testing.assert_array_equal(qgraph_quantizer(X, signed=signed).by_x, inside)


def test_inputs_that_fit_pull_the_threshold_in_and_others_push_it_out():
    inside = qgraph_quantizer(X).by_x == 1
    slope = qgraph_quantizer(X).of_loss().by_limits["log2 t"]
    assert (slope[inside] >= 0).all() and slope[inside].max() > 0
    assert (slope[~inside] < 0).all()


def test_unsigned_inputs_below_zero_leave_the_threshold_alone():
    """Their code is n = 0, which is a factor of their gradient (7)."""
    slope = qgraph_quantizer(X, signed=False).of_loss().by_limits["log2 t"]
    assert (slope[X < -1 / 16] == 0).all() and (slope[X > 15 / 16] < 0).all()


def test_only_clipped_inputs_are_moved_and_they_are_moved_in():
    inside, slope = qgraph_quantizer(X).by_x == 1, qgraph_quantizer(X).of_loss().by_x
    assert (slope[inside] == 0).all()
    np.testing.assert_array_equal(np.sign(slope[~inside]), np.sign(X[~inside]))


# -- section 3.5: clipped gradients ----------------------------------------------------------------


def test_clipped_gradients_only_push_limits_out():
    slopes = fake_quant(X).of_loss().by_limits
    assert (slopes["max"] <= 0).all() and (slopes["min"] >= 0).all()
    inside = fake_quant(X).by_x == 1
    assert not slopes["max"][inside].any() and not slopes["min"][inside].any()


def test_one_outlier_sets_limits_that_clipped_gradients_train_and_not_ours():
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    x[0] = 8.0
    low, high, log2_t = *LIMITS, 0.0
    for _ in range(600):
        slopes = fake_quant(x, 3, (low, high)).of_loss().by_limits
        low -= 0.02 * np.sign(slopes["min"].sum())
        high -= 0.02 * np.sign(slopes["max"].sum())
        log2_t -= 0.02 * np.sign(
            qgraph_quantizer(x, 3, log2_t=log2_t).of_loss().by_limits["log2 t"].sum()
        )
    clipped, traded = fake_quant(x, 3, (low, high)), qgraph_quantizer(x, 3, log2_t=log2_t)
    assert (clipped.by_x == 1).all()  # every input fits
    # But for half a step, by which 0 is made a code, and the last step of training.
    assert (low, high) == pytest.approx((x.min(), x.max()), abs=(high - low) / 14 + 0.02)
    assert np.flatnonzero(traded.by_x == 0).size > 1
    assert traded.of_loss().value.sum() < clipped.of_loss().value.sum() / 2


# -- section B.1, B.2: stability, scale invariance -------------------------------------------------


def test_a_raw_threshold_can_leave_the_positive_numbers():
    assert np.isnan(train(raw(), 2, [1.0], steps=50, start=3.0).log2_t[-1, 0])
    for name in ("normed log, SGD", "log, Adam"):
        assert np.isfinite(train(RULES[name](), 2, [1.0], steps=50, start=3.0).log2_t).all()


@BOTH
def test_log_gradients_grow_with_the_square_of_the_input_scale(bits):
    log2_t = np.arange(-4.0, 5.0)
    small, large = (mean_gradients(s, bits, log2_t + np.log2(s), 5001) for s in (1.0, 4.0))
    np.testing.assert_array_equal(large, 16 * small)
    by_t = [raw_gradients(log2_t + s, g) for s, g in ((0, small), (2, large))]
    np.testing.assert_allclose(by_t[1], 4 * by_t[0], rtol=1e-12)


@BOTH
def test_gradients_far_left_of_the_jump_vanish_by_log_and_are_flat_by_raw_thresholds(bits):
    log2_t = np.array([-9.0, -8.0, -7.0])
    by_log = mean_gradients(1.0, bits, log2_t)
    assert by_log[1:] / by_log[:-1] == pytest.approx(2, rel=0.03)
    by_raw = raw_gradients(log2_t, by_log)
    assert by_raw[1:] / by_raw[:-1] == pytest.approx(1, rel=0.03)


@BOTH
def test_gradients_right_of_the_jump_grow_exponentially(bits):
    log2_t = np.array([1.0, 2.0, 3.0]) + (2 if bits == 8 else 1)
    by_log = mean_gradients(1.0, bits, log2_t)
    assert by_log[1:] / by_log[:-1] == pytest.approx(4, rel=0.03)


def test_raw_thresholds_are_scale_invariant_with_the_l2_loss_if_they_start_so():
    """Thresholds of four times the inputs, started four times as high, are two bins above."""
    run = train(raw(), 8, [1.0, 4.0], steps=200, start=[0.0, 2.0])
    np.testing.assert_allclose(run.log2_t[:, 1], run.log2_t[:, 0] + 2, rtol=0, atol=1e-9)


# -- section B.3, figure 8: convergence ------------------------------------------------------------


def levels(run, column):
    return {int(level) for level in np.ceil(run.tail(500).log2_t[:, column])}


@BOTH
def test_normed_gradients_converge_and_stay_beside_the_critical_threshold(bits):
    run = train(RULES["normed log, SGD"](), bits)
    for column, sigma in enumerate(SIGMAS):
        boundary, _ = critical(sigma, bits)
        assert levels(run, column) <= {boundary, boundary + 1}, sigma
    assert np.abs(np.diff(run.log2_t, axis=0)).max() <= ALPHA * (1 + 1e-9)  # (18)


@BOTH
def test_adam_converges(bits):
    run = train(RULES["log, Adam"](), bits)
    for column, sigma in enumerate(SIGMAS):
        boundary, _ = critical(sigma, bits)
        most = np.median(np.ceil(run.tail(500).log2_t[:, column]))
        assert boundary <= most <= boundary + 1, sigma
        assert max(levels(run, column)) <= boundary + 2 and min(levels(run, column)) >= boundary


def test_the_least_error_is_beside_the_critical_threshold():
    """So thresholds that stay there have found it, to within one bin."""
    x = np.random.default_rng(1).standard_normal(20_000).astype(np.float32)
    for bits in BITS:
        for sigma in 2 ** np.linspace(0, 1, 9)[:-1]:
            boundary, _ = critical(sigma, bits)
            bins = np.arange(boundary - 2, boundary + 4)
            errors = [
                np.square(qgraph_quantizer(sigma * x, bits, log2_t=t).value - sigma * x).sum()
                for t in bins
            ]
            assert bins[np.argmin(errors)] in (boundary, boundary + 1)


def test_log_thresholds_without_norming_diverge_or_crawl():
    for bits in BITS:
        run = train(RULES["log, SGD"](), bits)
        assert np.isnan(run.log2_t[-1, 3:]).all()  # sigma 10 and 100
        assert run.log2_t[-1, 0] > critical(SIGMAS[0], bits)[0] + 1  # sigma 0.01: not there yet


def test_raw_thresholds_swing_over_many_bins_or_crawl():
    few, many = (train(raw(), bits) for bits in BITS)
    for column in range(len(SIGMAS)):
        assert len(levels(few, column)) >= 4
    for column in (0, 4):  # sigma 0.01 and 100, with 8 bits
        assert min(levels(many, column)) > critical(SIGMAS[column], 8)[0] + 1


def test_with_the_mean_of_losses_raw_thresholds_converge_for_large_inputs():
    """The paper leaves open what it sums over; its raw thresholds fail for large sigma too."""
    run = train(raw(ALPHA / SAMPLES), 4)
    boundary, _ = critical(SIGMAS[3], 4)
    assert levels(run, 3) <= {boundary, boundary + 1}
    assert min(levels(run, 0)) > critical(SIGMAS[0], 4)[0] + 1
