"""SAC in float16: each method at work, what overflows, few significand bits."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import TrainingError
from qgraph.rl.agents.former_names import half_settings
from qgraph.rl.half.hadam import HAdam
from qgraph.rl.half.methods import METHODS
from tests.helpers.rl_records import World
from tests.helpers.sac import batches, learner, types_of, weights_of


def test_each_method_is_at_work_where_it_belongs():
    for name in METHODS:
        sac = learner(precision="float16", float16_methods=(name,))
        optimizers = {part: descent.optimizer for part, descent in sac.descents.items()}
        assert all((type(o) is HAdam) == (name == "hadam") for o in optimizers.values())
        kahan = {part for part, optimizer in optimizers.items() if optimizer.compensation}
        assert kahan == ({"critic", "alpha"} if name == "kahan-gradients" else set())
        assert (sac.average.scale == 2.0**12 and bool(sac.average.compensation)) == (
            name == "kahan-momentum"
        )
        scaled = {d.compound and d.scale is not None for d in sac.descents.values()}
        assert scaled == {name == "compound-scaling"}


@pytest.mark.parametrize(
    ("method", "outputs"), [("normal-fix", (0.0, -4.99)), ("softplus-fix", (-8.0, 0.0))]
)
def test_a_fix_of_the_policy_is_what_keeps_its_gradients_finite(method, outputs):
    """The least deviation, by whose square gradients are divided twice; an action that is -1."""
    for methods in ((), (method,)):
        sac = learner(precision="float16", float16_methods=methods)
        sac.actor["output/kernel"].assign(tf.zeros_like(sac.actor["output/kernel"]))
        sac.actor["output/bias"].assign(np.repeat(outputs, 2))
        with tf.GradientTape() as tape:
            _, log_probability = sac._draw(tf.zeros((256, 3), tf.float16), 1)
        gradient = tape.gradient(log_probability, sac.actor["output/bias"])
        sound = np.isfinite(log_probability).all() and np.isfinite(gradient).all()
        assert sound == bool(methods)


@pytest.fixture(scope="module")
def trained():
    """Learners after 200 steps, and their losses."""
    found = {}
    for how in ("float32", "all"):
        settings = {} if how == "float32" else half_settings(how)
        sac = learner(learning_rate=1e-3, **settings)
        found[how] = sac, [sac.step(batch)[1] for batch in batches(World(), 200)]
    return found


def test_all_that_is_kept_is_float16(trained):
    sac, _ = trained["all"]
    assert types_of(sac) == {tf.float16}
    assert {v.dtype for v in sac.policy.values()} == {tf.float32}  # what actors get


def test_float16_with_all_methods_stays_near_float32(trained):
    plain, half = (np.mean(losses[-50:]) for _, losses in trained.values())
    assert half == pytest.approx(plain, rel=0.05)
    # The averages move by less than half a unit in the last place in each step.
    kernel = "average/one/hidden_0/kernel"
    start = weights_of(learner())[kernel]
    steps = [weights_of(sac)[kernel].astype(float) - start for sac, _ in trained.values()]
    assert np.corrcoef(*map(np.ravel, steps))[0, 1] > 0.9


def test_overflow_at_the_first_step_halves_the_scale():
    sac = learner(**half_settings("all"))
    before = weights_of(sac)
    (batch,) = batches(World(), 1, rewards=1e4)
    sac.step(batch)
    scales = {name: float(d.scale.value) for name, d in sac.descents.items()}
    assert scales == {"critic": 2.0**12, "actor": 2.0**13, "alpha": 2.0**13}
    after = weights_of(sac)
    assert all(np.array_equal(before[k], after[k]) for k in after if k.startswith("critic/"))
    optimizer = sac.descents["critic"].optimizer
    assert float(optimizer.gradient_scale) == 2.0**12 and int(optimizer.iterations) == 0
    for batch in batches(World(), 20, rewards=1e4):
        sac.step(batch)
    after = weights_of(sac)
    assert float(sac.descents["critic"].scale.value) < 2.0**12
    assert int(optimizer.iterations) > 0 and all(np.isfinite(v).all() for v in after.values())


def test_what_no_scale_mends_is_reported():
    sac = learner(**half_settings("hadam,compound-scaling"))
    (batch,) = batches(World(), 1)
    batch.records["reward"] = -60_000.0
    sac.critic["one/output/bias"].assign([60_000.0])  # both are finite, what lies between is not
    with pytest.raises(TrainingError, match="overflow at every loss scale") as caught:
        for _ in range(40):
            sac.step(batch)
    assert caught.value.node == "critic" and int(sac.taken) == 28
    assert all(np.isfinite(v.numpy()).all() for v in sac.critic.values())


@pytest.mark.parametrize("how", ["none", "loss-scaling"])
def test_weights_that_are_not_finite_are_reported(how):
    """Adam divides 0 by 0 where squares underflow: no scale brings weights back."""
    sac = learner(**half_settings(how))
    with pytest.raises(TrainingError, match="weights are no longer finite") as caught:
        for batch in batches(World(), 40):
            sac.step(batch)
    assert caught.value.node == "critic" and "float16_methods" in caught.value.hint
    assert int(sac.taken) < 5


@pytest.mark.parametrize("how", ["all", "none", "mixed", "loss-scaling"])
@pytest.mark.parametrize("part", ["observation", "next_observation", "reward"])
def test_numbers_outside_float16_are_reported_at_once(how, part):
    sac = learner(**half_settings(how))
    (batch,) = batches(World(), 1)
    batch.records[part].flat[3] = -66000
    said = part.replace("_", " ")
    with pytest.raises(TrainingError, match=f"{said}s are up to 66000, which is infinite"):
        sac.step(batch)
    batch.records[part].flat[3] = np.nan
    with pytest.raises(TrainingError, match=f"{said}s have NaN"):
        sac.step(batch)
    assert int(sac.taken) == 0
    if how in ("all", "mixed"):
        batch.records[part].flat[3] = -65000
        assert np.isfinite(sac.step(batch)[1])


def test_an_average_that_overflows_is_named():
    sac = learner(**half_settings("all"), tau=0.9)
    sac.critic["one/output/bias"].assign([17.0])
    with pytest.raises(TrainingError, match="one/output/bias: the average of weights, scaled"):
        for batch in batches(World(), 10):
            sac.step(batch)


def test_few_significand_bits_are_all_that_is_kept():
    sac = learner(significand=4, **half_settings("all"))
    for batch in batches(World(), 20):
        sac.step(batch)
    for variable in [*sac.actor.values(), *sac.critic.values(), sac.log_alpha]:
        values = variable.numpy()
        assert np.isfinite(values).all()
        _, exponent = np.frexp(values.astype(float))
        unit = np.ldexp(1.0, np.maximum(exponent - 1, -14) - 4)
        assert (values / unit == np.rint(values / unit)).all()
