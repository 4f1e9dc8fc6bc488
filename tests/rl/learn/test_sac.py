"""SAC: its step, that the six methods change nothing but rounding, and runs in float16."""

from functools import cache

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import TrainingError, UsageError
from qgraph.rl.agents import config_for
from qgraph.rl.agents.former_names import half_settings
from qgraph.rl.half.methods import METHODS
from qgraph.rl.learn.runs import train
from tests.helpers.cli import run as qgraph
from tests.helpers.rl_records import World
from tests.helpers.sac import apart, batches, learner, types_of, weights_of

# -- Statement 1 -----------------------------------------------------------------------------------


@cache
def learnt(updates, methods=()):
    """Weights after this number of updates in float64."""
    sac = learner(precision="float64", float16_methods=methods, learning_rate=1e-3)
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


def test_where_softplus_is_a_line_the_step_is_the_same():
    """Actions of -1, below K of float64 too: what is kept after an update, gradients with it."""
    found = []
    for methods in ((), ("softplus-fix",)):
        sac = learner(precision="float64", float16_methods=methods)
        sac.actor["output/bias"].assign([-25.0, -25.0, 0.0, 0.0])
        for batch in batches(World(), 1):
            sac.step(batch)
        found.append({name: v.numpy() for name, v in sac.state.items()})
    assert apart(*found) < 1e-14


# -- the step itself -------------------------------------------------------------------------------


def test_the_value_of_the_next_state_is_the_formula():
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
        assert found[name].numpy() == pytest.approx(tenth, rel=1e-12), name
    (first,) = sac.descents["alpha"].optimizer.first
    assert float(first) == pytest.approx(
        0.1 * 0.1 * float(tf.reduce_mean(2 - log_probability)), rel=1e-12
    )


def test_alpha_falls_where_there_is_entropy_enough():
    sac = learner(learning_rate=0.01)
    for batch in batches(World(), 50):
        sac.step(batch)
    assert float(sac.log_alpha) < np.log(0.1) - 0.2  # it began almost uniform


def test_the_average_follows_at_its_period():
    sac = learner(target_update_period=2, learning_rate=0.01)
    start = {k: v.numpy() for k, v in sac.average.read().items()}
    for i, batch in enumerate(batches(World(), 2)):
        sac.step(batch)
        for name, value in sac.average.read().items():
            moved = start[name] + 0.005 * (sac.critic[name].numpy() - start[name])
            assert np.allclose(value, moved if i else start[name], rtol=1e-5, atol=1e-7)


# -- runs ------------------------------------------------------------------------------------------

SMALL = {
    "in_process": True,
    "steps": 300,
    "hidden_sizes": (16,),
    "critic_hidden_sizes": (16,),
    "min_replay_size": 50,
    "batch_size": 16,
    "samples_per_insert": 8.0,
    "evaluate_every": 50,
    "episodes": 1,
}


@pytest.mark.parametrize("how", ["float32", "all", "mixed", "loss-scaling,hadam"])
def test_a_learner_continues_from_its_state_bit_for_bit(how):
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


def test_a_run_in_naive_float16_ends_with_a_clear_message(tmp_path):
    pytest.importorskip("gymnasium", reason="needs the extra `rl`")
    with pytest.raises(TrainingError):
        train(tmp_path / "run", "sac", "Pendulum-v1", {**SMALL, **half_settings("none")})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--algo", "sac", "--half", "hadm"), "unknown method of float16 `hadm`"),
        (("--algo", "sac", "--half", "compound-scaling,loss-scaling"), "not by both"),
        (("--algo", "d4pg", "--half", "all"), "float16 is not supported by D4PG"),
        (("--algo", "d4pg", "--significand", "5"), "d4pg has no setting --significand"),
        (("--algo", "sac", "--half", "mixed", "--significand", "5"), "has its own significands"),
        (("--algo", "sac", "--layer-norm"), "sac has no setting --layer-norm"),
        (("--algo", "sac", "--mixed-bfloat16"), "--precision mixed_bfloat16 is not supported"),
        (("--algo", "d4pg", "--dueling"), "d4pg has no setting --dueling"),
        (("--algo", "sac", "--no-double"), "sac has no setting --double-q"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, said):
    result = qgraph("rl", "train", *arguments, "--env", "Pendulum-v1", "--out", tmp_path / "run")
    assert result.code == 2 and said in result.err
    assert not (tmp_path / "run").exists()


def test_methods_by_name():
    assert half_settings("all")["float16_methods"] == METHODS
    assert half_settings("mixed")["precision"] == "mixed_float16"
    assert half_settings("hadam, normal-fix")["float16_methods"] == ("hadam", "normal-fix")
    with pytest.raises(UsageError):
        half_settings("")
    assert half_settings("mixed, softplus-fix") == {
        "precision": "mixed_float16",
        "float16_methods": ("loss-scaling", "softplus-fix"),
    }
    wrong = {
        "hadam,all": "`all` must be the only method",
        "mixed,none": "`none` must be the only method",
        "hadam,mixed": "`mixed` must be in front of",
        "mixed,compound-scaling": "not by both",
        "mixed,": "unknown method of float16",
    }
    for text, said in wrong.items():
        with pytest.raises(UsageError, match=said):
            half_settings(text)


def test_settings_of_images_are_those_of_every_task():
    for task in ("cartpole-swingup", "cheetah-run"):
        images = config_for("sac", f"dm_control:{task}:pixels")
        assert (images.learning_rate, images.reward_scale) == (1e-3, 0.1)
    held = config_for("sac", "dm_control:cartpole-swingup:held")
    assert (held.learning_rate, held.reward_scale, held.steps) == (1e-3, 0.1, 12_000)
    for other in ("dm_control:cheetah-run:held", "dm_control:cheetah-run", "My-v0:pixels"):
        states = config_for("sac", other)
        assert (states.learning_rate, states.reward_scale) == (3e-4, 1.0)


@pytest.mark.parametrize(
    "given",
    [
        {"tau": 2.0},
        {"tau": 0.0},
        {"tau": np.nan},
        {"learning_rate": -1.0},
        {"learning_rate": 0.0},
        {"learning_rate": np.nan},
    ],
)
def test_numbers_that_make_no_sense(given):
    (name,) = given
    with pytest.raises(UsageError, match=f"{name} must be"):
        config_for("sac", "fixed", **given)
