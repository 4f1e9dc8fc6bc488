"""Quantizers of other papers: their equations, and all kinds through the trainer."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.figures.toy import normed_log
from benchmarks.quantizers import compare
from benchmarks.quantizers.kinds import BY_NAME, FIXED, FLOAT, KINDS
from benchmarks.quantizers.normed import NormedDescent
from benchmarks.quantizers.single import (
    FakeQuant,
    Lsq,
    MaxWeights,
    MovingRange,
    Pact,
    Quantizer,
    RangeOfChannels,
    RangeOfWeights,
    RealTqt,
    lsq,
    pact,
    stepped,
)
from benchmarks.result import read
from qgraph import retrain
from qgraph.compiler import quantize
from qgraph.errors import UnsupportedError, UsageError
from qgraph.exact.reference import Reference
from qgraph.ir.types import QuantSpec, Role
from qgraph.quant.profile import load_profile
from qgraph.quantized import Quantized
from qgraph.retrain.directory import CHECKPOINTS
from qgraph.train.folded import norms_of
from qgraph.train.freezing import Freezing
from qgraph.train.loop import Trainer
from qgraph.train.optimizer import Rate
from qgraph.train.options import Options
from tests.helpers.retraining import batches, images, keras_network

X = np.array([-9, -2.3, -2, -1.6, -1, -0.3, 0, 0.4, 0.5, 1.2, 1.5, 1.75, 1.8, 2, 7], "float32")
ONES = [FakeQuant, Lsq, MaxWeights, MovingRange, Pact, RangeOfChannels, RangeOfWeights, RealTqt]
NUMBERS = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=30)


def gradients(run, x, *parameters):
    """The output, and gradients of the sum of `w * y` with weights w: of x and each parameter."""
    upstream = np.arange(1, len(x) + 1, dtype="float32")
    with tf.GradientTape() as tape:
        given = [tf.constant(v, tf.float32) for v in (x, *parameters)]
        for tensor in given:
            tape.watch(tensor)
        y = run(*given)
    return y.numpy(), upstream, [g.numpy() for g in tape.gradient(y, given, upstream)]


# -- the equations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(-4, 3), (0, 7)])
def test_lsq_clips_its_gradients_before_rounding(low, high):
    """LSQ, equations 3 and 5, at and between the limits of the range."""
    step = 0.5
    y, upstream, (by_x, by_step) = gradients(lambda x, s: lsq(x, s, low, high), X, step)
    wanted_y, wanted_x, wanted_step = [], [], 0.0
    for x, u in zip(X.tolist(), upstream.tolist(), strict=True):
        v = x / step
        inside = low < v < high
        slope = low if v <= low else high if v >= high else round(v) - v
        wanted_y.append(round(min(max(v, low), high)) * step)
        wanted_x.append(u if inside else 0.0)
        wanted_step += u * slope
    np.testing.assert_array_equal(y, wanted_y)
    np.testing.assert_array_equal(by_x, wanted_x)
    assert by_step == pytest.approx(wanted_step, rel=1e-5)


@pytest.mark.parametrize(("low", "high"), [(-4, 3), (0, 7)])
def test_real_scales_have_the_gradients_of_tqt(low, high):
    """Equations 6 and 8: a code clips half a step later than with LSQ."""
    step = 0.5
    y, upstream, (by_x, by_step) = gradients(lambda x, s: stepped(x, s, low, high), X, step)
    codes = np.rint(X / step)
    inside = (codes >= low) & (codes <= high)
    slope = np.where(inside, codes - X / step, np.clip(codes, low, high))
    np.testing.assert_array_equal(y, np.clip(codes, low, high) * step)
    np.testing.assert_array_equal(by_x, upstream * inside)
    assert by_step == pytest.approx(float(upstream @ slope), rel=1e-5)


def test_where_values_are_clipped_the_gradient_is_the_slope_of_the_function():
    """Compared with finite differences, because the quantizer is smooth in its parameter there."""
    spec = QuantSpec(4, True, Role.ACTIVATION, 3)
    x = np.array([-8, 9.0, 30.0], "float32")
    for make in (RealTqt, Lsq, Pact):
        made = make(spec, np.array([-0.9, 0.3, 1.0], "float32"))
        size = 1 / math.sqrt(made.high) if make is Lsq else 1.0  # LSQ scales its gradient
        _, upstream, (_, found) = gradients(made.run, x, made.first)
        up, down = (
            float(upstream @ made.run(tf.constant(x), tf.constant(made.first + h)).numpy())
            for h in (0.01, -0.01)
        )
        assert found[0] / size == pytest.approx((up - down) / 0.02, rel=1e-3), make


@pytest.mark.parametrize("signed", [False, True])
def test_pact_trains_its_limit_by_clipped_values_alone(signed):
    """TQT, equation 1: 0 below the limit, 1 from it on."""
    y, upstream, (by_x, by_limit) = gradients(lambda x, a: pact(x, a, 7.0, signed), X, 1.75)
    low = -1.75 if signed else 0.0
    steps = np.rint(np.clip(X, low, 1.75) / 0.25) * 0.25
    np.testing.assert_array_equal(y, steps)
    above, below = X >= 1.75, (low >= X if signed else low > X)
    np.testing.assert_array_equal(by_x, upstream * ~(above | below))
    wanted = upstream[above].sum() - (upstream[below].sum() if signed else 0)
    assert by_limit == wanted
    assert above[X.tolist().index(1.75)]


def test_pact_pulls_its_limit_in_by_a_penalty():
    made = Pact(QuantSpec(8, False, Role.ACTIVATION, 7), np.array([0.0, 3.0], "float32"))
    assert float(made.penalty(tf.constant([0.5]))) == pytest.approx(Pact.DECAY * 1.5**2)


def test_fake_quant_trains_its_limits_by_clipped_values_alone():
    """TQT, equation 11 and figure 3: rounding counts as the identity."""
    made = FakeQuant(QuantSpec(3, True, Role.ACTIVATION, 2), np.array([-1.125, 0.875], "float32"))
    y, upstream, (by_x, by_limits) = gradients(made.run, X, made.first)
    step = 2.0 / 7
    low, high = -4 * step, 3 * step  # moved by less than a step, so that 0 is a code
    np.testing.assert_allclose(y, np.rint(np.clip(X, low, high) / step) * step, rtol=1e-5)
    inside = (low <= X) & (high >= X)
    np.testing.assert_array_equal(by_x, upstream * inside)
    span = made.span
    wanted = [span * upstream[low > X].sum(), span * upstream[high < X].sum()]
    np.testing.assert_allclose(by_limits, wanted, rtol=1e-6)


def test_lsq_starts_from_the_mean_and_scales_its_gradient():
    x = np.array([[1.0, -3.0], [2.0, 4.0]], "float32")
    made = Lsq(QuantSpec(3, True, Role.WEIGHT, 0), x)
    assert made.start == pytest.approx(2 * 2.5 / math.sqrt(3))
    with tf.GradientTape() as tape:
        trained = tf.constant(made.first)
        tape.watch(trained)
        y = made.run(tf.constant([[100.0, -100.0], [100.0, 0.0]]), trained)
    wanted = (3 - 4 + 3 + 0) * made.start / math.sqrt(4 * 3)
    assert tape.gradient(y, trained).numpy()[0] == pytest.approx(wanted, rel=1e-5)


def test_moving_ranges_move_towards_those_of_the_batch():
    made = MovingRange(QuantSpec(8, True, Role.ACTIVATION, 0), np.array([-1.0, 2.0], "float32"))
    ((variable, value),) = made.updates(tf.constant([-3.0, 4.0]))
    np.testing.assert_allclose(value, [-1.02, 2.02], rtol=1e-6)
    assert [variable] == made.variables


@pytest.mark.parametrize("depthwise", [False, True])
def test_channels_of_weights_are_quantized_alone(depthwise):
    x = np.random.default_rng(0).normal(size=(3, 3, 4, 2)).astype("float32") * [[0.1, 3]]
    made = RangeOfChannels(QuantSpec(4, True, Role.WEIGHT, 0), x, depthwise)
    y = made.run(tf.constant(x, tf.float32), None).numpy()
    columns, found = (v.reshape((9, 8) if depthwise else (-1, 2)) for v in (x, y))
    for column, quantized in zip(columns.T, found.T, strict=True):
        step = np.abs(column).max() / 7
        np.testing.assert_allclose(quantized, np.rint(column / step) * step, atol=step * 1e-4)


def test_normed_gradients_move_thresholds_as_in_the_paper():
    """Equations 17 and 18, step by step, against the toy problem's."""
    ranges = tf.Variable([0.0, 1.0, -2.0])
    optimizer = NormedDescent(Rate(1e-3, 1.0, 1), Rate(0.1, 1.0, 1), Freezing(ranges))
    optimizer.build([ranges])
    rule, wanted = normed_log(0.1, epsilon=1e-8), ranges.numpy().astype(float)
    rng = np.random.default_rng(0)
    for _ in range(20):
        gradient = rng.normal(size=3) * [1e-4, 1.0, 1e3]
        optimizer.apply_gradients([(tf.constant(gradient, tf.float32), ranges)])
        wanted = rule(wanted, gradient)
    np.testing.assert_allclose(ranges.numpy(), wanted, rtol=2e-4, atol=1e-5)
    assert np.abs(wanted - [0, 1, -2]).max() <= 20 * 0.1


# -- laws ------------------------------------------------------------------------------------------


def run_of(make: type[Quantizer], bits: int, signed: bool, start: np.ndarray):
    made = make(QuantSpec(bits, signed, Role.ACTIVATION, 3), start)
    return lambda x: np.asarray(made.run(tf.constant(x), tf.constant(made.first)))


@pytest.mark.parametrize("make", ONES)
@example(2, False, [1.0], [-3.0, -2.0, -1.0, 2.0, 3.0])
@given(st.integers(2, 8), st.booleans(), NUMBERS, NUMBERS)
def test_few_codes_in_order_and_stable(make, bits, signed, start, numbers):
    """A quantizer has at most 2^bits values, keeps order, and has 0 as a code."""
    x = np.sort(np.array([0, *numbers], "float32"))[:, None]
    run = run_of(make, bits, signed, np.array(start, "float32")[:, None])
    y = run(x)
    assert np.isfinite(y).all() and (np.diff(y[:, 0]) >= 0).all()
    assert len(np.unique(y)) <= 2**bits
    np.testing.assert_array_equal(y[x == 0], 0)


# -- through the trainer ---------------------------------------------------------------------------


@cache
def calibrated(name: str) -> Quantized:
    compared = BY_NAME[name]
    profile = replace(load_profile("graffitist-int4"), per_channel=compared.per_channel)
    network = keras_network()
    return quantize(network, images(), mode="retrain", profile=profile, plan=compared.plan)


def trainer_of(name: str, folder=None, made: Quantized | None = None) -> Trainer:
    compared, made = BY_NAME[name], made or calibrated(name)
    graph = made.graph if compared.quantized else made.floating
    options = Options(epochs=1, batch_size=16, learn=compared.learn, weight_rate=1e-3)
    sample = {graph.inputs[0]: images(16)}
    return Trainer(
        graph, made.floating, norms_of(made.floating), batches(made), batches(made, seed=3),
        options, kind=compared.kind_for(sample), folder=folder,
    )  # fmt: skip


def assert_trains(name: str) -> None:
    """Ranges move if the kind trains them. The result is in integers or is refused, as the kind
    states.
    """
    compared, run = BY_NAME[name], trainer_of(name)
    before = {n: v.numpy() for n, v in run.model.named_variables().items()}
    run.run()
    moved = {n for n, v in run.model.named_variables().items() if not np.array_equal(before[n], v)}
    trains = not compared.kind.gradient.startswith("none") and bool(run.model.thresholds)
    assert ("ranges" in moved) == trains
    assert any(n.startswith("average/") for n in moved) == name.startswith("qat")
    if not compared.kind.integers and compared.quantized:
        with pytest.raises(UnsupportedError, match=f"`{name}` do not end in integers"):
            run.model.finalized()
    elif compared.quantized:
        final, feeds = run.model.finalized(), {run.model.graph.inputs[0]: images(8, seed=9)}
        found = tf.function(run.model)({n: tf.constant(v) for n, v in feeds.items()})
        for output, value in Reference(final).outputs(feeds).items():
            np.testing.assert_array_equal(found[output], value)


def test_lsq_trains_in_the_trainer():
    assert_trains("lsq")


@pytest.mark.slow
@pytest.mark.parametrize("name", [k.name for k in KINDS if k.name != "lsq" and not k.by_tfmot])
def test_each_kind_trains_in_the_trainer(name):
    assert_trains(name)


def test_a_checkpoint_of_other_quantizers_is_refused_by_name(tmp_path):
    out = retrain.save(calibrated("lsq"), tmp_path / "out")
    (out / CHECKPOINTS).mkdir()
    run = trainer_of("lsq", out / CHECKPOINTS)
    run.stopped = lambda: True
    run.run()
    with pytest.raises(UnsupportedError, match="`lsq`, which do not end in integers") as found:
        retrain.finalize(out)
    assert "qgraph train" in str(found.value) and "--restart" in str(found.value)
    with pytest.raises(UsageError, match="a run with quantizers `lsq`, not `tqt`"):
        trainer_of("tqt", out / CHECKPOINTS, calibrated("lsq")).run()


# -- the list and the tables -----------------------------------------------------------------------


def test_names_are_unique_and_descriptions_differ_where_kinds_do():
    assert len(BY_NAME) == len(KINDS) == len({k.kind.title for k in KINDS})
    assert all(k.kind.integers == (k.both is None) for k in KINDS if k.quantized and not k.by_tfmot)
    assert [row["name"] for row in compare.kinds_table().rows] == [k.name for k in KINDS[1:]]


def test_tables_have_means_errors_and_paired_differences():
    def facts(test):
        scores = [{"step": i, "accuracy": test - 0.01 * i} for i in range(6)]
        return {
            "test": test,
            "untrained": 0.5,
            "best": scores[0],
            "history": scores,
            "different": 0,
        }

    tests = {"float": (0.92, 0.91), "tqt": (0.9, 0.92), "lsq": (0.89, 0.9), "fixed": (0.7, 0.7)}
    rows = {
        ("mobilenet_v1", profile, name, seed): facts(value)
        for profile in compare.PROFILES
        for name, values in tests.items()
        for seed, value in enumerate(values, 1)
    }
    made = {table.title.split(" ")[0]: table for table in compare.tables(rows)}
    row = made["Test"].row(quantizer="TQT")
    assert (
        row["mobilenet_v1 INT4"] == pytest.approx([91.0, 1.0]) and row["ends in integers"] == "yes"
    )
    assert made["TQT"].row({"TQT over": "LSQ"})["mobilenet_v1 INT8"] == pytest.approx([1.5, 0.5])
    assert made["Static"].rows[0]["static INT8"] == 50
    assert made["MobileNets"].row(method=FLOAT.kind.title)["mobilenet_v1"][0] == pytest.approx(91.5)
    assert made["Best"].row(bits="INT4", quantizer=FIXED.kind.title)["best"][0] == pytest.approx(70)
    assert made["Best"].row(bits="INT4", quantizer="LSQ")["different codes"] == "-"


def test_the_page_lists_the_kinds_of_now():
    assert read("quantizers").table("Kinds of").rows == compare.kinds_table().rows
