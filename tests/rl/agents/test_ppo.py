"""The learner of PPO, compared with plain sums."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import UsageError
from qgraph.rl.agents import config_for
from qgraph.rl.agents.ppo.advantages import advantages
from qgraph.rl.agents.ppo.learner import EPSILON, PpoLearner
from qgraph.rl.environments import Actions
from qgraph.rl.learn.records import record_type
from tests.helpers.ppo import SMALL, learner, rollout
from tests.helpers.rl_records import World, batch_of

ONE = {"epochs": 1, "minibatch_size": 60}  # a single step of Adam
WHOLE = st.tuples(st.integers(-8, 8), st.sampled_from([-1.0, 0.0, 1.0]))
HALVES = st.tuples(st.integers(-8, 8), st.sampled_from([0.0, 0.5, 1.0]))
STEPS = st.one_of(  # whose sums float32 has exactly
    st.lists(WHOLE, min_size=1, max_size=70), st.lists(HALVES, min_size=1, max_size=14)
)


@given(STEPS)
def test_advantages_are_the_sums_of_a_plain_loop(steps):
    errors, decay = (np.array(column, np.float32) for column in zip(*steps, strict=True))
    wanted, later = np.zeros_like(errors), 0.0
    for t in reversed(range(len(steps))):
        wanted[t] = later = errors[t] + decay[t] * later
    found = advantages(tf.constant(errors), tf.constant(decay))
    assert np.array_equal(found, wanted)


def outputs(weights, x, critic="critic"):
    """The policy's output and the values, written out."""

    def dense(name, y):
        return y @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    policy = dense("policy/output", np.tanh(dense("policy/hidden_0", x)))
    return policy, dense("critic/output", np.tanh(dense("critic/hidden_0", x)))[:, 0]


def densities(weights, found, discrete):
    """The log probabilities of actions, and entropies."""
    given, values = outputs(weights, found["observation"].astype(float))
    if discrete:
        logs = given - np.log(np.exp(given).sum(-1, keepdims=True))
        chosen = np.take_along_axis(logs, found["action"][:, None], -1)[:, 0]
        return chosen, -(np.exp(logs) * logs).sum(-1), values
    log_std = weights["policy/log_std/offset"]
    away = (found["action"] - given) / np.exp(log_std)
    chosen = -(away**2 / 2 + log_std + np.log(2 * np.pi) / 2).sum(-1)
    return chosen, (log_std + np.log(2 * np.pi * np.e) / 2).sum(), values


def loss_of(weights, found, config, first):
    """The loss in numpy; `first`: the weights that targets are computed with."""
    discrete = found["action"].dtype == np.int64
    *_, values = densities(first, found, discrete)
    _, following = outputs(first, found["next_observation"].astype(float))
    errors = config.reward_scale * found["reward"] + found["discount"] * following - values
    advantage, later = np.zeros(len(found)), 0.0
    for t in reversed(range(len(found))):
        last = found["length"][t] or t in (len(found) // 2 - 1, len(found) - 1)
        later = errors[t] + (0 if last else config.gae_lambda * found["discount"][t] * later)
        advantage[t] = later
    target = advantage + values
    if config.normalize_advantages:
        advantage = (advantage - advantage.mean()) / advantage.std(ddof=1)
    log_pi, entropy, now = densities(weights, found, discrete)
    ratio = np.exp(log_pi - found["log_probability"])
    clipped = np.clip(ratio, 1 - config.clip_range, 1 + config.clip_range)
    if config.value_clip_range:
        now = values + np.clip(now - values, -config.value_clip_range, config.value_clip_range)
    return (
        -np.minimum(ratio * advantage, clipped * advantage).mean()
        + config.value_cost * ((target - now) ** 2).mean()
        - config.entropy_cost * np.mean(entropy)
    )


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        {"entropy_cost": 0.1},
        {"normalize_advantages": False, "reward_scale": 0.5, "gae_lambda": 0.5},
        {"value_clip_range": 0.1, "clip_range": 0.1, "gradient_norm": 0.0},
    ],
)
def test_a_step_is_one_of_adam_down_the_papers_loss(discrete, more):
    made, batch = learner(discrete, **ONE, **more), rollout(discrete)
    before = {name: v.numpy().astype(float) for name, v in made.weights.items()}
    found, config = batch.records, made.config
    _, loss = made.step(batch)
    assert loss == pytest.approx(loss_of(before, found, config, before), rel=1e-5)
    assert 0.1 < made.measures.clipped < 0.9  # both parts of the minimum count
    gradients = {}
    for name, weights in before.items():
        if name == "policy/log_std/scale":
            continue
        gradients[name] = np.zeros_like(weights)
        for at in np.ndindex(weights.shape):
            pair = []
            for step in (1e-6, -1e-6):
                moved = {**before, name: weights.copy()}
                moved[name][at] += step
                pair.append(loss_of(moved, found, config, before))
            gradients[name][at] = (pair[0] - pair[1]) / 2e-6
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    assert norm > 0.1
    for name, gradient in gradients.items():
        held = gradient * (min(1, config.gradient_norm / norm) if config.gradient_norm else 1)
        assert made.adam.state[f"first/{name}"].numpy() == pytest.approx(0.1 * held, abs=1e-5)
        change = made.weights[name].numpy() - before[name]
        wanted = -config.learning_rate * held / (np.abs(held) + EPSILON / np.sqrt(0.001))
        sure = np.abs(held) > 0.001  # of its sign, in float32
        assert change[sure] == pytest.approx(wanted[sure], rel=0.02)


@pytest.mark.parametrize("discrete", [True, False])
def test_a_policy_that_acted_itself_has_a_ratio_of_one(discrete):
    made, batch = learner(discrete, **ONE), rollout(discrete)
    weights = {name: v.numpy().astype(float) for name, v in made.weights.items()}
    batch.records["log_probability"], _, _ = densities(weights, batch.records, discrete)
    made.step(batch)
    assert made.measures.clipped == 0 and abs(made.measures.kl) < 1e-6


def test_each_epoch_uses_each_step_once():
    made = learner(epochs=3)
    first = made._places().numpy()
    assert first.shape == (9, 20)
    for epoch in first.reshape(3, 60):
        assert np.array_equal(np.sort(epoch), np.arange(60))
    assert len({epoch.tobytes() for epoch in first.reshape(3, 60)}) == 3
    made.taken.assign_add(1)
    assert not np.array_equal(first, made._places())


def test_epochs_end_where_the_policy_is_too_far_from_the_one_that_acted():
    batch = rollout()
    ended = learner(target_kl=1e-6)
    before = {name: v.numpy() for name, v in ended.state.items()}
    ended.step(batch)
    assert ended.measures.minibatches == 1
    changed = [name for name, v in ended.state.items() if not np.array_equal(v, before[name])]
    assert changed == ["taken"]
    near, free = learner(target_kl=100.0), learner()
    for made in (near, free):
        made.step(batch)
        assert made.measures.minibatches == 6
    for name, variable in free.state.items():
        assert np.array_equal(variable, near.state[name]), name


def test_the_learning_rate_falls_evenly():
    """The fourth of 5 rollouts has 2 of 5 parts of the rate."""
    falling, lower = learner(anneal_learning_rate=True), learner(learning_rate=3e-4 * 0.4)
    falling.taken.assign(3)
    lower.taken.assign(3)
    for made in (falling, lower):
        made.step(rollout())
    for name, variable in lower.weights.items():
        assert falling.weights[name].numpy() == pytest.approx(variable.numpy(), abs=1e-7), name
    falling.taken.assign(7)  # of a run that was continued with more steps
    assert falling._share_of_rate() == 0


@pytest.mark.parametrize("discrete", [True, False])
def test_steps_in_bfloat16_are_finite(discrete):
    made = learner(discrete, precision="mixed_bfloat16")
    for seed in range(2):
        errors, loss = made.step(rollout(discrete, seed=seed))
        assert errors.shape == (60,) and np.isfinite(errors).all() and np.isfinite(loss)
    for name, variable in made.state.items():
        assert np.isfinite(variable.numpy()).all(), name


def test_images_have_one_torso_for_policy_and_critic():
    world = World((12, 12, 2), np.uint8, count=3)
    made = PpoLearner(config_for("ppo", "Any-v0", **{**SMALL, **ONE}), world)
    assert {"policy/conv_0/kernel", "policy/value/kernel"} <= set(made.weights)
    assert set(made.policy) == set(made.program.weight_shapes) and made.critic is None
    assert set(made.acting.weights) == set(made.policy)
    before = made.weights["policy/conv_0/kernel"].numpy()
    scale = made.weights["policy/scaled/scale"].numpy()
    records = np.zeros(60, record_type(world))
    records["observation"] = np.random.default_rng(0).integers(256, size=(60, 12, 12, 2))
    records["reward"], records["log_probability"] = 1.0, -np.log(3)
    made.step(batch_of(records))
    assert not np.array_equal(made.weights["policy/conv_0/kernel"], before)
    assert np.array_equal(made.weights["policy/scaled/scale"], scale)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"steps": 59}, "steps 59 is too few for one rollout: batch_size is 60"),
        ({"minibatch_size": 25}, "batch_size 60 is not a multiple of minibatches of 25"),
        ({"actors": 7}, "not a multiple of 7 actors that wait for each other"),
        ({"publish_every": 2}, "publish_every must be 1, not 2: actors wait for the policy of"),
        ({"actor_update_period": 3}, "actor_update_period must be 1, not 3"),
        ({"clip_range": 0.0}, "clip_range must be a finite number above 0"),
        ({"unroll_length": 3}, "ppo has no setting unroll_length"),
        ({"compress": "quantize(8)"}, "compress cannot be combined with synchronous"),
    ],
)
def test_settings_that_do_not_fit_are_refused(more, said):
    with pytest.raises(UsageError, match=said):
        config_for("ppo", "Any-v0", **{**SMALL, **more})


def test_actors_that_do_not_wait_need_no_equal_parts():
    config = config_for("ppo", "Any-v0", **{**SMALL, "actors": 7, "synchronous": False})
    assert config.needed_version(1000) == 0


def test_deviations_are_not_compressed():
    world = World((4,), actions=2)
    config = config_for("ppo", "Any-v0", synchronous=False, compress="prune(0.5)")
    with pytest.raises(UsageError, match="compress is for policies whose deviations are fixed"):
        PpoLearner(config, world)
    world.actions = Actions(count=3)
    assert PpoLearner(config, world).head.kind == "categorical"
