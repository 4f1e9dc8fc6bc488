"""SAC: its step, that the six methods change nothing but rounding, and runs in float16."""

from functools import cache

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import TrainingError, UsageError
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.environments import Actions
from qgraph.rl.half.hadam import HAdam
from qgraph.rl.half.methods import METHODS, half_settings
from qgraph.rl.learn.options import options_for
from qgraph.rl.learn.pixels import shifted
from qgraph.rl.learn.records import record_type
from qgraph.rl.learn.replay import Batch
from qgraph.rl.learn.runs import train
from qgraph.rl.learn.sac import Sac
from tests.helpers.cli import run as qgraph


class World:
    """What a learner needs to know of an environment."""

    def __init__(self, shape=(3,), dtype=np.float32, actions=2):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.actions = Actions(low=(-2.0,) * actions, high=(2.0,) * actions)


def learner(world=None, **settings):
    world = world or World()
    small = {"hidden": (8,), "critic": (8,), "batch": 16, **settings}
    return Sac(options_for("sac", "fixed", **small), world)


def batches(world, count, size=16, seed=0, rewards=1.0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        records = np.zeros(size, record_type(world))
        for name in ("observation", "next_observation"):
            shape = (size, *world.shape)
            images = len(world.shape) == 3
            records[name] = rng.integers(0, 256, shape) if images else rng.normal(size=shape)
        records["action"] = rng.uniform(-1, 1, records["action"].shape)
        records["reward"] = rewards * rng.normal(size=size)
        records["discount"] = 0.99
        yield Batch(records, np.arange(size), np.ones(size, np.float32))


def weights_of(sac):
    parts = {"actor": sac.actor, "critic": sac.critic, "average": sac.average.read()}
    found = {f"{part}/{k}": np.asarray(v) for part, vs in parts.items() for k, v in vs.items()}
    return {**found, "log_alpha": sac.log_alpha.numpy()}


def apart(a, b):
    """The largest difference of weights, relative to the largest weight of its kind."""
    both = [(a[name], b[name]) for name in a]
    return max(np.abs(x - y).max() / max(np.abs(x).max(), 1e-3) for x, y in both)


# -- Statement 1 -----------------------------------------------------------------------------------


@cache
def learnt(updates, methods=()):
    """Weights after so many updates in float64."""
    sac = learner(precision="float64", methods=methods, rate=1e-3)
    for descent in sac.descents.values():
        if descent.scale is not None:
            descent.scale.interval = 40  # so that the scale changes on the way
    for batch in batches(World(), updates):
        sac.step(batch)
    return weights_of(sac)


# A step rounds by 1e-16 of its numbers. Steps that follow pass that on, and Adam enlarges it where
# a gradient is small beside its past; 1e-9 leaves a factor of 1e7 for that, and is a hundred
# thousandth of what a single float32 rounding in each step would leave.
CLOSE = 1e-9


def test_the_methods_change_nothing_but_rounding():
    plain, modified = learnt(100), learnt(100, METHODS)
    assert 0 < apart(plain, modified) < CLOSE
    start = weights_of(learner(precision="float64"))
    assert apart(start, plain) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("methods", [METHODS, *((name,) for name in METHODS)], ids=str)
def test_statement_1(methods):
    assert apart(learnt(1000), learnt(1000, methods)) < CLOSE


# -- the step itself -------------------------------------------------------------------------------


def test_what_is_said_of_the_next_state_is_the_formula():
    """Against SAC written out in numpy, for the first step's critics."""
    sac = learner(precision="float64")
    (batch,) = batches(World(), 1)
    weights = {k: v.astype(np.float64) for k, v in weights_of(sac).items()}
    noise = tf.random.stateless_normal((16, 2), [0, 0]).numpy().astype(np.float64)

    def layers(part, x):
        for name in ("hidden_0", "output"):
            x = x @ weights[f"{part}/{name}/kernel"] + weights[f"{part}/{name}/bias"]
            x = x if name == "output" else np.maximum(x, 0)
        return x

    following = batch.records["next_observation"].astype(np.float64)
    mean, log_std = np.split(layers("actor", following), 2, -1)
    std = np.exp(log_std)
    action = np.tanh(mean + std * noise)
    log_density = -(noise**2) / 2 - np.log(std) - np.log(2 * np.pi) / 2
    log_probability = (log_density - np.log(1 - action**2)).sum(-1)
    pairs = np.concatenate([following, action], -1)
    ahead = np.minimum(*(layers(f"average/{name}", pairs)[:, 0] for name in ("one", "two")))
    wanted = batch.records["reward"] + batch.records["discount"] * (ahead - 0.1 * log_probability)
    said = np.concatenate([batch.records["observation"], batch.records["action"]], -1)
    errors = [layers(f"critic/{name}", said)[:, 0] - wanted for name in ("one", "two")]
    found, loss = sac.step(batch)
    assert found == pytest.approx(np.abs(errors).sum(0), rel=1e-6)
    assert loss == pytest.approx(np.square(errors).mean(1).sum(), rel=1e-6)


def test_policy_and_alpha_go_down_their_losses():
    """Gradients of the first step, which Adam remembers a tenth of, against losses written out."""
    sac = learner(precision="float64")
    # Critics that differ, and a policy that draws unlike numbers.
    rng = np.random.default_rng(1)
    for variable in (*sac.critic.values(), *sac.actor.values()):
        variable.assign(rng.normal(size=variable.shape) / 3)
    before = {name: tf.constant(variable.numpy()) for name, variable in sac.actor.items()}
    (batch,) = batches(World(), 1)
    sac.step(batch)
    critic = {name: variable.numpy() for name, variable in sac.critic.items()}  # it moves first
    x = batch.records["observation"].astype(np.float64)
    noise = tf.cast(tf.random.stateless_normal((16, 2), [0, 1]), tf.float64)

    def layers(weights, prefix, x):
        for name in ("hidden_0", "output"):
            x = x @ weights[f"{prefix}{name}/kernel"] + weights[f"{prefix}{name}/bias"]
            x = x if name == "output" else tf.nn.relu(x)
        return x

    with tf.GradientTape() as tape:
        tape.watch(before)
        mean, log_std = tf.split(layers(before, "", x), 2, -1)
        action = tf.tanh(mean + tf.exp(log_std) * noise)
        density = -(noise**2) / 2 - log_std - np.log(2 * np.pi) / 2
        log_probability = tf.reduce_sum(density - tf.math.log(1 - action**2), -1)
        pairs = tf.concat([x, action], -1)
        value = tf.minimum(*(layers(critic, f"{name}/", pairs)[:, 0] for name in ("one", "two")))
        loss = tf.reduce_mean(0.1 * log_probability - value)
    wanted = tape.gradient(loss, before)
    found = dict(zip(sac.actor, sac.descents["actor"].optimizer.first, strict=True))
    for name, gradient in wanted.items():
        tenth = 0.1 * gradient.numpy()
        assert found[name].numpy() == pytest.approx(tenth, rel=1e-6, abs=1e-9), name
    (first,) = sac.descents["alpha"].optimizer.first
    assert float(first) == pytest.approx(0.1 * 0.1 * float(tf.reduce_mean(2 - log_probability)))


def test_each_method_is_at_work_where_it_belongs():
    for name in METHODS:
        sac = learner(precision="float16", methods=(name,))
        optimizers = {part: descent.optimizer for part, descent in sac.descents.items()}
        assert all((type(o) is HAdam) == (name == "hadam") for o in optimizers.values())
        kahan = {part for part, optimizer in optimizers.items() if optimizer.lost}
        assert kahan == ({"critic", "alpha"} if name == "kahan-gradients" else set())
        assert (sac.average.scale == 2.0**12 and bool(sac.average.lost)) == (
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
        sac = learner(precision="float16", methods=methods)
        sac.actor["output/kernel"].assign(tf.zeros_like(sac.actor["output/kernel"]))
        sac.actor["output/bias"].assign(np.repeat(outputs, 2))
        with tf.GradientTape() as tape:
            _, log_probability = sac._draw(tf.zeros((256, 3), tf.float16), 1)
        gradient = tape.gradient(log_probability, sac.actor["output/bias"])
        sound = np.isfinite(log_probability).all() and np.isfinite(gradient).all()
        assert sound == bool(methods)


def test_alpha_falls_where_there_is_entropy_enough():
    sac = learner(rate=0.01)
    for batch in batches(World(), 50):
        sac.step(batch)
    assert float(sac.log_alpha) < np.log(0.1) - 0.2  # it began almost uniform


def test_the_average_follows_at_its_period():
    sac = learner(target_period=2, rate=0.01)
    start = {k: v.numpy() for k, v in sac.average.read().items()}
    for i, batch in enumerate(batches(World(), 2)):
        sac.step(batch)
        for name, value in sac.average.read().items():
            moved = start[name] + 0.005 * (sac.critic[name].numpy() - start[name])
            assert np.allclose(value, moved if i else start[name], rtol=1e-5, atol=1e-7)


# -- float16 ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained():
    """Learners after 200 steps, and their losses."""
    found = {}
    for how in ("float32", "all"):
        settings = {} if how == "float32" else half_settings(how)
        sac = learner(rate=1e-3, **settings)
        found[how] = sac, [sac.step(batch)[1] for batch in batches(World(), 200)]
    return found


def types_of(sac):
    kept = [*sac.actor.values(), *sac.critic.values(), *sac.average.state.values(), sac.log_alpha]
    for descent in sac.descents.values():
        optimizer = descent.optimizer
        kept += [*optimizer.first, *optimizer.second, *optimizer.lost]
    return {v.dtype for v in kept}


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


def test_what_no_scale_cures_is_said():
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
def test_weights_that_are_not_finite_are_said(how):
    """Adam divides 0 by 0 where squares underflow: no scale brings weights back."""
    sac = learner(**half_settings(how))
    with pytest.raises(TrainingError, match="weights are not finite any more") as caught:
        for batch in batches(World(), 40):
            sac.step(batch)
    assert caught.value.node == "critic" and "--half" in caught.value.hint
    assert int(sac.taken) < 5


@pytest.mark.parametrize("how", ["all", "none", "mixed", "loss-scaling"])
@pytest.mark.parametrize("part", ["observation", "next_observation", "reward"])
def test_what_float16_does_not_hold_is_said_at_once(how, part):
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
    with pytest.raises(TrainingError, match="one/output/bias: the average of weights, kept 4096"):
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


# -- pixels ----------------------------------------------------------------------------------------


def test_images_are_shifted_each_by_itself():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (64, 9, 11, 2)).astype(np.uint8)
    moved, seen = shifted(tf.constant(images), tf.constant([0, 5])).numpy(), set()
    for whole, found in zip(images, moved, strict=True):
        rim = np.pad(whole, ((4, 4), (4, 4), (0, 0)), mode="edge")
        places = [
            (i, j)
            for i in range(9)
            for j in range(9)
            if np.array_equal(rim[i : i + 9, j : j + 11], found)
        ]
        assert len(places) == 1
        seen.update(places)
    assert len(seen) > 30 and {i for i, _ in seen} == {j for _, j in seen} == set(range(9))


def test_images_are_shifted_in_each_step(monkeypatch):
    world, calls = World((20, 20, 3), np.uint8, 1), []
    monkeypatch.setattr(
        "qgraph.rl.learn.sac.shifted", lambda images, seed: calls.append(seed) or images
    )
    (batch,) = batches(world, 1)
    learner(world).step(batch)
    assert len(calls) == 2


@pytest.mark.parametrize("how", ["float32", "all"])
def test_images(how):
    world = World((20, 20, 3), np.uint8, 1)
    settings = {} if how == "float32" else half_settings(how)
    sac = learner(world, **settings)
    kernel = sac.actor["output/kernel"]  # tiny at first
    kernel.assign(np.random.default_rng(3).normal(size=kernel.shape))
    before = {k: v.numpy() for k, v in sac.critic.items()}
    for batch in batches(world, 3):
        errors, loss = sac.step(batch)
        assert np.isfinite(loss) and np.isfinite(errors).all()
    names = [name for name in before if name.startswith("encoder/")]
    assert len(names) == 12 and not any("scaled" in name for name in names)
    moved = [not np.array_equal(before[name], sac.critic[name].numpy()) for name in names]
    assert np.mean(moved) > 0.9
    # What actors run is what the learner computes.
    weights = {name: v.numpy() for name, v in sac.policy.items()}
    act = Actor(Packer(sac.program, bits=32).pack(weights))
    x = batch.records["observation"].astype(np.float32)
    wanted = sac._run(sac.actor_program, sac.actor, sac.features(sac.critic, x)).numpy()
    tolerance = 1e-4 if how == "float32" else 0.02
    assert np.abs(wanted).max() > 0.5
    assert act(x) == pytest.approx(wanted.astype(float), abs=tolerance)


# -- runs ------------------------------------------------------------------------------------------

SMALL = {
    "in_process": True,
    "steps": 300,
    "hidden": (16,),
    "critic": (16,),
    "least": 50,
    "batch": 16,
    "spi": 8.0,
    "evaluate_every": 50,
    "episodes": 1,
}


@pytest.mark.parametrize("how", ["float32", "all", "mixed", "loss-scaling,hadam"])
def test_a_learner_goes_on_from_its_state_bit_for_bit(how):
    settings = {} if how == "float32" else half_settings(how)
    whole, last = learner(**settings), learner(seed=0, **settings)
    seen = list(batches(World(), 30))
    for batch in seen[:15]:
        whole.step(batch)
    kept = {name: v.numpy() for name, v in whole.state.items()}
    for name, v in last.state.items():
        v.assign(kept[name])
    for batch in seen[15:]:
        assert whole.step(batch)[1] == last.step(batch)[1]
    for name, v in last.state.items():
        assert np.array_equal(v.numpy(), whole.state[name].numpy()), name


@pytest.mark.parametrize("how", ["float32", "all", "mixed"])
def test_a_run(tmp_path, how):
    pytest.importorskip("gymnasium", reason="needs the extra `rl`")
    settings = {} if how == "float32" else half_settings(how)
    training = train(tmp_path / "run", "sac", "Pendulum-v1", {**SMALL, **settings})
    assert training.done and training.counts.learner_steps > 100
    actions = training.replay.records["action"]
    assert np.abs(actions).max() <= 1 and actions.std() > 0.3
    types = {"float32": tf.float32, "all": tf.float16, "mixed": tf.float32}
    assert types_of(training.learner) == {types[how]}
    if how != "all":
        return
    again = train(tmp_path / "run", settings={"steps": 350}, resume=True)
    assert again.limiter.inserts == 350
    assert int(again.learner.taken) == again.counts.learner_steps


def test_a_run_in_naive_float16_ends_in_words(tmp_path):
    pytest.importorskip("gymnasium", reason="needs the extra `rl`")
    with pytest.raises(TrainingError):
        train(tmp_path / "run", "sac", "Pendulum-v1", {**SMALL, **half_settings("none")})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--algo", "sac", "--half", "hadm"), "no method of float16 is called `hadm`"),
        (("--algo", "sac", "--half", "compound-scaling,loss-scaling"), "not by both"),
        (("--algo", "d4pg", "--half", "all"), "d4pg learns in float32 only"),
        (("--algo", "d4pg", "--significand", "5"), "d4pg learns in float32 only"),
        (("--algo", "sac", "--half", "mixed", "--significand", "5"), "its own significands"),
        (("--algo", "sac", "--layer-norm"), "sac has no use for --layer-norm"),
        (("--algo", "sac", "--mixed-bfloat16"), "sac has no use for --mixed-bfloat16"),
        (("--algo", "d4pg", "--dueling"), "d4pg has no use for --dueling"),
        (("--algo", "sac", "--no-double"), "sac has no use for --no-double"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, said):
    result = qgraph("rl", "train", *arguments, "--env", "Pendulum-v1", "--out", tmp_path / "run")
    assert result.code == 2 and said in result.err
    assert not (tmp_path / "run").exists()


def test_methods_by_name():
    assert half_settings("all")["methods"] == METHODS
    assert half_settings("mixed")["precision"] == "mixed"
    assert half_settings("hadam, normal-fix")["methods"] == ("hadam", "normal-fix")
    with pytest.raises(UsageError):
        half_settings("")
    for text in ("mixed,hadam", "hadam,all"):
        with pytest.raises(UsageError, match="stands alone"):
            half_settings(text)


@pytest.mark.parametrize(
    "given",
    [{"tau": 2.0}, {"tau": 0.0}, {"tau": np.nan}, {"rate": -1.0}, {"rate": 0.0}, {"rate": np.nan}],
)
def test_numbers_that_make_no_sense(given):
    (name,) = given
    with pytest.raises(UsageError, match=f"{name} is"):
        options_for("sac", "fixed", **given)
