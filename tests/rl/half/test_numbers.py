"""Failures in float16 and their cures: each method on the numbers of the paper's section 3."""

import math
from statistics import NormalDist

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from qgraph.rl.half.average import SCALE, Average
from qgraph.rl.half.hadam import HAdam, LowPrecisionAdam, hypot
from qgraph.rl.half.kahan import kahan_add
from qgraph.rl.half.normal import log_density
from qgraph.rl.half.softplus import linear_below, log_slope, softplus
from qgraph.rl.half.standardize import standardized

HALF = tf.float16


def half(values):
    return tf.constant(np.asarray(values, np.float16))


def moved(kind, gradients, dtype=HALF, start=0.0, **settings):
    """Value of a variable after a step along each gradient, as float64."""
    variable = tf.Variable([start], dtype=dtype)
    optimizer = kind(0.01, **settings)
    for gradient in gradients:
        optimizer.apply_gradients([(tf.constant([gradient], dtype), variable)])
    return float(variable[0])


RATE = float(np.float32(0.01))  # as Keras keeps it


def adam_in_float64(gradients, rate=RATE, beta_1=0.9, beta_2=0.999, epsilon=1e-8):
    x = m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g * g
        x -= rate * m / (1 - beta_1**t) / (math.sqrt(v / (1 - beta_2**t)) + epsilon)
    return x


@pytest.mark.parametrize("kind", [LowPrecisionAdam, HAdam])
@pytest.mark.parametrize("scale", [1.0, 2.0**13])
def test_both_are_adam_where_numbers_suffice(kind, scale):
    gradients = np.random.default_rng(0).normal(0, 1e-3, 50)
    found = moved(kind, gradients * scale, tf.float64, gradient_scale=scale)
    assert found == pytest.approx(adam_in_float64(gradients), rel=1e-12)


@pytest.mark.parametrize("size", [1e-5, 1e-4])
def test_small_gradients_are_infinite_steps_without_hypot(size):
    gradients = [size, size / 2, size]
    assert not math.isfinite(moved(LowPrecisionAdam, gradients))
    assert moved(HAdam, gradients) == pytest.approx(adam_in_float64(gradients), rel=0.02)


def test_gradients_of_1e_7_need_a_scale_too():
    gradients, scale = np.array([1e-7, 2e-7, 1e-7]), 2.0**13
    wanted = adam_in_float64(gradients)
    assert not math.isfinite(moved(LowPrecisionAdam, gradients))
    assert moved(HAdam, gradients) == 0  # no step at all
    found = moved(HAdam, gradients * scale, gradient_scale=scale)
    # epsilon is a tenth of the gradients here: it has to be scaled with them.
    assert found == pytest.approx(wanted, rel=0.02)
    assert abs(moved(HAdam, gradients * scale) / wanted - 1) > 0.05


def test_steps_are_too_long_where_the_moments_are_subnormal():
    """Such weights grow until an average overflows that is kept times 2^12: a scale cures that."""
    gradients, scale = np.full(300, 1.5e-6), 2.0**13
    wanted = adam_in_float64(gradients)
    assert abs(moved(HAdam, gradients)) > 3 * abs(wanted)
    found = moved(HAdam, gradients * scale, gradient_scale=scale)
    assert found == pytest.approx(wanted, rel=0.05)


def test_variables_without_gradients_stay():
    assert not math.isfinite(moved(LowPrecisionAdam, [0.0]))  # 0 / 0: epsilon is 0 in float16
    assert moved(HAdam, [0.0]) == 0


sizes = st.floats(1e-150, 1e150) | st.just(0.0)


@given(sizes, sizes)
def test_hypot_is_the_one_of_math(a, b):
    found = float(hypot(tf.constant(a, tf.float64), tf.constant(-b, tf.float64)))
    assert found == pytest.approx(math.hypot(a, b), rel=1e-15)


@given(st.integers(0, 0x7BFF), st.integers(0, 0x7BFF))
def test_hypot_of_all_of_float16(a, b):
    a, b = np.array([a, b], np.uint16).view(np.float16)
    found, wanted = float(hypot(half(a), half(b))), math.hypot(a, b)
    if wanted < 65504:
        assert abs(found - wanted) <= 2 * np.spacing(np.float16(wanted))


@pytest.mark.parametrize("scale", [0.5, 2.0, 1024.0])
@pytest.mark.parametrize("kind", [LowPrecisionAdam, HAdam])
def test_a_new_scale_changes_no_step(kind, scale):
    gradients = np.random.default_rng(0).normal(0, 1e-2, 20)
    variable = tf.Variable([0.0], dtype=tf.float64)
    optimizer = kind(0.01)
    for i, gradient in enumerate(gradients):
        if i == 10:
            assert optimizer.holds(scale)
            optimizer.rescale(tf.constant(scale))
        now = gradient * (scale if i >= 10 else 1)
        optimizer.apply_gradients([(tf.constant([now], tf.float64), variable)])
    assert float(variable[0]) == pytest.approx(adam_in_float64(gradients), rel=1e-12)


def test_a_scale_that_is_too_much_is_known():
    variable = tf.Variable([0.0], dtype=HALF)
    optimizer = HAdam(0.01)
    optimizer.apply_gradients([(half([1e4]), variable)])
    assert optimizer.holds(2.0) and not optimizer.holds(2.0**10)


# -- the policy -----------------------------------------------------------------------------------


def test_tanh_is_1_long_before_its_slope_is_0():
    u = half([5.0])
    assert 1 - np.tanh(u.numpy()) ** 2 == 0
    wanted = math.log(1 - math.tanh(5.0) ** 2)
    assert float(log_slope(u)[0]) == pytest.approx(wanted, rel=1e-2)


@given(st.floats(-30, 30))
def test_log_slope_is_that_of_tanh(u):
    wanted = 2 * (math.log(2) - abs(u) - math.log1p(math.exp(-2 * abs(u))))  # even
    for fix in (True, False):
        found = float(log_slope(tf.constant(u, tf.float64), fix=fix))
        assert found == pytest.approx(wanted, rel=1e-13, abs=1e-13)


def gradient_of(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y.numpy(), tape.gradient(y, x).numpy()


@pytest.mark.parametrize("u", [-5.6, -8.0, -100.0])
def test_softplus_overflows_where_u_is_very_negative(u):
    value, slope = gradient_of(lambda x: softplus(x, fix=False), half([u]))
    assert np.isinf(value) and np.isnan(slope)
    value, slope = gradient_of(softplus, half([u]))
    assert value[0] == np.float16(-2 * u) and slope[0] == -2


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float32, tf.float64])
def test_the_linear_part_begins_where_rounding_hides_the_difference(dtype):
    limit = linear_below(dtype)
    lost = math.log1p(math.exp(2 * limit))  # log(1 + e^x) - x
    spacing = 2.0 ** (math.floor(math.log2(-2 * limit))) * math.exp(2 * limit)  # eps = exp(2 K)
    assert lost <= spacing
    assert -2 * limit < math.log(float(dtype.max)) - 1  # and exp is finite there
    below, above = (softplus(tf.constant(limit * f, dtype)) for f in (1.001, 0.999))
    assert float(below) == pytest.approx(float(above), rel=0.01)


def test_a_variance_that_rounds_to_0():
    x, mean, std = half([1e-4]), half([0.0]), half([1e-4])
    wanted = -0.5 - math.log(1e-4) - math.log(2 * math.pi) / 2
    assert not np.isfinite(log_density(x, mean, std, fix=False).numpy()).all()
    value, slope = gradient_of(lambda s: log_density(x, mean, s), std)
    assert value[0] == pytest.approx(wanted, rel=1e-2)
    assert np.isfinite(slope).all()


@pytest.mark.parametrize(
    ("std", "finite"), [(0.0157, True), (0.0156, False), (math.exp(-5), False)]
)
def test_a_variance_whose_gradient_is_infinite(std, finite):
    """A failure in SAC, whose deviations are e^-5 at least: 4^2 / std^2 is above 65504."""
    mean, std = half([0.0]), half([std])
    value, slope = gradient_of(lambda s: log_density(4 * std, mean, s, fix=False), std)
    assert np.isfinite(value).all() and np.isfinite(slope).all() == finite
    _, slope = gradient_of(lambda s: log_density(4 * std, mean, s), std)
    assert np.isfinite(slope).all()


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0.5, 5))
def test_log_density_is_the_normal_one(x, mean, std):
    wanted = math.log(NormalDist(mean, std).pdf(x))
    for fix in (True, False):
        found = float(log_density(*(tf.constant(v, tf.float64) for v in (x, mean, std)), fix=fix))
        assert found == pytest.approx(wanted, rel=1e-12, abs=1e-12)


# -- the target network ---------------------------------------------------------------------------


def followed(kahan, steps, dtype=HALF, start=1.0, end=1.01, share=0.005):
    source = {"w": tf.Variable([start], dtype=dtype)}
    average = Average(source, share, kahan=kahan)
    source["w"].assign([end])
    step = tf.function(average.update)
    for _ in range(steps):
        step()
    return float(average.read()["w"][0])


def test_a_target_that_is_near_stays_behind_without_kahan():
    # 0.005 of the way of 0.01 is a twentieth of a unit in the last place.
    wanted = 1.01 - 0.01 * 0.995**400
    assert followed(True, 400) == pytest.approx(wanted, abs=1e-3)
    assert abs(followed(False, 400) - wanted) > 5e-3


def test_both_averages_are_the_same_in_float64():
    wanted = 1.01 - 0.01 * 0.995**100
    for kahan in (True, False):
        assert followed(kahan, 100, tf.float64) == pytest.approx(wanted, rel=1e-14)


def test_small_changes_of_small_weights_count():
    """(1 - beta) (psi - average) is 5e-9, less than float16's smallest number."""
    found = followed(True, 2000, start=0.0, end=1e-6)
    assert found == pytest.approx(1e-6, rel=0.1)
    assert followed(False, 2000, start=0.0, end=1e-6) == 0
    assert SCALE * 16 <= 65536


# -- updates ---------------------------------------------------------------------------------------


def test_small_updates_of_alpha_are_lost_without_kahan():
    steps, start = 1000, float(np.float16(-2.3))
    found = {}
    for kahan in (True, False):
        variable = tf.Variable([-2.3], dtype=HALF)
        optimizer = HAdam(1e-4, kahan=kahan)
        step = tf.function(lambda o, v: o.apply_gradients([(half([1.0]), v)]))
        optimizer.build([variable])
        for _ in range(steps):
            step(optimizer, variable)
        found[kahan] = float(variable[0])
    assert found[False] == start  # not moved at all
    # The second moment itself comes only within a fifth of what it should be.
    assert start - found[True] == pytest.approx(1e-4 * steps, rel=0.25)


@given(st.lists(st.floats(-1, 1, width=16), max_size=30))
def test_a_kahan_sum_is_right_to_two_units(values):
    total, lost = tf.Variable(0.0, dtype=HALF), tf.Variable(0.0, dtype=HALF)
    for value in values:
        kahan_add(total, lost, half(value))
    size = sum(abs(value) for value in values)
    assert abs(float(total) - sum(values)) <= 2 * 2.0**-11 * size + 1e-6


# -- layers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [tf.float16, tf.float64])
def test_standardized_columns(dtype):
    kernel = np.random.default_rng(0).normal(0.001, 1e-4, (2000, 5))
    kernel = kernel.astype(np.float16).astype(float)
    found = standardized(tf.constant(kernel, dtype)).numpy().astype(float)
    rel = 1e-9 if dtype == tf.float64 else 0.01
    assert found.std(0) * math.sqrt(2000) == pytest.approx(np.ones(5), rel=rel)
    centered = kernel - kernel.mean(0)
    assert found == pytest.approx(centered / kernel.std(0) / math.sqrt(2000), rel=rel, abs=2e-4)
    assert (standardized(tf.ones((8, 2), dtype)).numpy() == 0).all()


@pytest.mark.parametrize("size", [1e-3, 1.0])
def test_gradients_of_standardized_columns_are_summed_in_more(size):
    """39,200 of one sign: a sum in float16 stands still, or is infinite."""
    rng = np.random.default_rng(0)
    kernel = rng.uniform(-0.01, 0.01, (39_200, 3)).astype(np.float16)
    back = rng.uniform(5 * size, 10 * size, kernel.shape).astype(np.float16)
    found, wanted = (
        gradient_of(lambda x: standardized(x) * tf.cast(back, x.dtype), tf.cast(kernel, dtype))[1]
        for dtype in (HALF, tf.float64)
    )
    assert np.linalg.norm(found - wanted) < 1e-3 * np.linalg.norm(wanted)
