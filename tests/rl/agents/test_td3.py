"""TD3: its steps are the equations of the paper, and it learns with actors in few bits."""

import csv

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import UsageError
from qgraph.rl.agents import config_for
from qgraph.rl.agents.registry import check_fits
from qgraph.rl.agents.td3.config import Td3Config
from qgraph.rl.agents.td3.learner import Td3Learner, smoothed
from qgraph.rl.learn.runs import train
from tests.helpers.cli import run as qgraph
from tests.helpers.rl_records import World, transitions

POINT = "tests.helpers.environments:Point-v0"
BETAS, EPSILON = (0.9, 0.999), 1e-8


def learner_of(world=None, **settings):
    small = {"hidden_sizes": (8,), "critic_hidden_sizes": (8,), "batch_size": 16, **settings}
    return Td3Learner(Td3Config("fixed", **small), world or World())


def linear(policy, critics, targets, **settings):
    """A learner for observations [1] and actions [1] without hidden layers.

    The policy and its target are tanh(k x + b) by (k, b); critics and their targets are
    k x + l a + b by (k, l, b).
    """
    made = learner_of(World((1,), actions=1), hidden_sizes=(), critic_hidden_sizes=(), **settings)
    for weights in (made.policy, made.target):
        weights["output/kernel"].assign([[policy[0]]])
        weights["output/bias"].assign([policy[1]])
    for weights, values in ((made.critic, critics), (made.critic_target, targets)):
        for name, (of_x, of_a, bias) in zip(("one", "two"), values, strict=True):
            weights[f"{name}/output/kernel"].assign([[of_x], [of_a]])
            weights[f"{name}/output/bias"].assign([bias])
    return made


def for_linear(size=16, **columns):
    """A batch for `linear`, random except for these columns."""
    return transitions(World((1,), actions=1), size, **columns)


def test_target_actions_have_clipped_noise_and_stay_in_their_range():
    action, noise = [0.9, -0.95, 0.0, 0.25, 0.25], [0.3, -2.0, 0.125, -9.0, 9.0]
    found = smoothed(tf.constant(action), tf.constant(noise), 0.5)
    assert found.numpy().tolist() == [1.0, -1.0, 0.125, -0.25, 0.75]


def test_the_target_is_the_smaller_of_both_critics_for_each_transition():
    """Q1'(x') = 2 x' and Q2'(x') = 3 - x' by hand; Q1 = 1 and Q2 = 10 everywhere."""
    made = linear(
        (0, 0), [(0, 0, 1), (0, 0, 10)], [(2, 0, 0), (-1, 0, 3)],
        target_noise=0.0, reward_scale=0.5,
    )  # fmt: skip
    batch = for_linear(
        4, next_observation=[0, 1, 2, -4], reward=[2, 2, 4, 6], discount=[0.5, 0.5, 0.5, 0]
    )
    batch.importance[:] = [1, 0.5, 0.25, 1]
    # The smaller ones are 0, 2, 1, -8; half the rewards are 1, 1, 2, 3; the last ends an episode.
    y = np.array([1, 2, 2.5, 3])
    errors, loss = made.step(batch)
    assert errors.tolist() == ((abs(1 - y) + abs(10 - y)) / 2).tolist()
    assert loss == np.mean(batch.importance * ((1 - y) ** 2 + (10 - y) ** 2))


def test_targets_are_of_the_target_policy_and_its_noise():
    """Q1'(x', a') = a', so errors of Q1 = Q2 = 0 are |a'|; the policy's target is tanh(1.5)."""
    critics, targets = [(0, 0, 0)] * 2, [(0, 1, 0), (0, 1, 5)]
    size = 4000
    batch = for_linear(size, reward=np.zeros(size), discount=np.ones(size))

    def actions(bias, **settings):
        made = linear((0, bias), critics, targets, policy_delay=9, **settings)
        made.critic_adam.rate = 0.0  # critics stay as they are
        return made, made.step(batch)[0]

    made, still = actions(1.5, target_noise=0.0)
    assert still == pytest.approx(np.full(size, np.tanh(1.5)), rel=1e-6)
    made, noisy = actions(0.0)
    assert noisy.max() == 0.5 and (noisy == 0.5).mean() == pytest.approx(0.0124, abs=0.006)
    assert noisy[noisy < 0.5].std() > 0.1
    assert np.sqrt(np.mean(noisy**2)) == pytest.approx(0.1987, rel=0.03)
    assert not np.array_equal(noisy, made.step(batch)[0])  # other noise in each step
    assert np.array_equal(noisy, actions(0.0)[1])
    assert not np.array_equal(noisy, actions(0.0, seed=1)[1])
    assert actions(0.0, target_noise=0.01)[1].max() < 0.1
    assert actions(0.0, target_noise=9.0, target_noise_clip=0.25)[1].max() == 0.25


def test_the_policy_goes_up_the_first_critic_only():
    """Q1 falls with the action and Q2 rises: the bias of the policy goes down, by Adam's rate."""
    made = linear((0, 0), [(0, -1, 0), (0, 5, 0)], [(0, 0, 0)] * 2, policy_delay=1)
    made.critic_adam.rate = 0.0
    made.step(for_linear(observation=np.ones(16)))
    rate = made.config.learning_rate
    assert made.policy["output/bias"].numpy() == pytest.approx([-rate], rel=1e-4)
    assert made.policy["output/kernel"].numpy()[0] == pytest.approx([-rate], rel=1e-4)


class PlainTd3:
    """Algorithm 1 of Fujimoto et al. (2018) in numpy and float64, with gradients by hand.

    It begins where a learner is. A network is a list of kernels and biases; layers but the last
    end in max(x, 0).
    """

    def __init__(self, learner):
        self.config, self.steps = learner.config, int(learner.taken)
        self.policy, self.target = arrays(learner.policy), arrays(learner.target)
        self.critic, self.critic_target = arrays(learner.critic), arrays(learner.critic_target)
        rate = self.config.learning_rate
        self.policy_adam = PlainAdam(self.policy, learner.policy_adam.state, rate)
        self.critic_adam = PlainAdam(self.critic, learner.critic_adam.state, rate)

    def step(self, records, importance, noise):
        """One step; `noise` is standard normal, [n, a]. The errors of both critics, [2, n]."""
        config = self.config
        clip = config.target_noise_clip
        smooth = np.clip(config.target_noise * noise, -clip, clip)
        following = records["next_observation"].astype(float)
        action = np.clip(np.tanh(outputs(self.target, following)[-1]) + smooth, -1, 1)
        pairs = np.concatenate([following, action], 1)
        ahead = [outputs(self.critic_target, pairs, i)[-1][:, 0] for i in ("one/", "two/")]
        y = config.reward_scale * records["reward"] + records["discount"] * np.minimum(*ahead)

        x = records["observation"].astype(float)
        pairs, errors, found = np.concatenate([x, records["action"]], 1), [], {}
        for prefix in ("one/", "two/"):
            layers = outputs(self.critic, pairs, prefix)
            errors.append(layers[-1][:, 0] - y)
            back = 2 * importance * errors[-1] / len(y)
            found |= gradients(self.critic, layers, back[:, None], prefix)[0]
        self.critic_adam.move(found)
        self.steps += 1
        if self.steps % config.policy_delay == 0:
            self._delayed(x)
        return np.array(errors)

    def _delayed(self, x):
        layers = outputs(self.policy, x)
        action = np.tanh(layers[-1])
        values = outputs(self.critic, np.concatenate([x, action], 1), "one/")
        down = np.full((len(x), 1), -1 / len(x))
        _, pairs = gradients(self.critic, values, down, "one/")
        back = pairs[:, x.shape[1] :] * (1 - action**2)
        self.policy_adam.move(gradients(self.policy, layers, back)[0])
        tau = self.config.tau
        for learnt, target in ((self.policy, self.target), (self.critic, self.critic_target)):
            for name, weight in learnt.items():
                target[name] = tau * weight + (1 - tau) * target[name]

    @property
    def state(self):
        parts = {
            "policy": self.policy,
            "target": self.target,
            "critic": self.critic,
            "critic_target": self.critic_target,
            "policy_adam": self.policy_adam.state,
            "critic_adam": self.critic_adam.state,
        }
        return {f"{part}/{name}": v for part, found in parts.items() for name, v in found.items()}


class PlainAdam:
    def __init__(self, weights, state, rate):
        self.weights, self.state, self.rate = weights, arrays(state), rate

    def move(self, found):
        state, powers = self.state, self.state["powers"]
        # As Kingma and Ba write it in section 2, where epsilon is not divided by sqrt(1 - power).
        rate = self.rate * np.sqrt(1 - powers[1]) / (1 - powers[0])
        for name, gradient in found.items():
            for moment, beta, part in zip(("first", "second"), BETAS, (1, 2), strict=True):
                before = state[f"{moment}/{name}"]
                state[f"{moment}/{name}"] = beta * before + (1 - beta) * gradient**part
            root = np.sqrt(state[f"second/{name}"]) + EPSILON
            self.weights[name] = self.weights[name] - rate * state[f"first/{name}"] / root
        state["powers"] = powers * BETAS


LAYERS = ("hidden_0", "output")


def outputs(network, x, prefix=""):
    """The input of each layer, and the output of the last."""
    found = [x]
    for layer in LAYERS:
        y = found[-1] @ network[f"{prefix}{layer}/kernel"] + network[f"{prefix}{layer}/bias"]
        found.append(np.maximum(y, 0) if layer == "hidden_0" else y)
    return found


def gradients(network, layers, back, prefix=""):
    """The gradients of kernels and biases, and of the input, from that of the output."""
    found = {}
    for i, layer in reversed(list(enumerate(LAYERS))):
        kernel = f"{prefix}{layer}/kernel"
        found |= {kernel: layers[i].T @ back, f"{prefix}{layer}/bias": back.sum(0)}
        back = (back @ network[kernel].T) * ((layers[i] > 0) if i else 1)
    return found, back


def arrays(variables):
    return {name: variable.numpy().astype(np.float64) for name, variable in variables.items()}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"policy_delay": 1, "reward_scale": 0.3},
        {"policy_delay": 3, "target_noise": 0.7, "target_noise_clip": 0.2, "tau": 0.5},
        {"target_noise": 0.0, "seed": 4},
    ],
    ids=str,
)
def test_each_step_is_algorithm_1(settings):
    made, rng = learner_of(learning_rate=0.01, **{"tau": 0.1, **settings}), np.random.default_rng(5)
    for name, variable in made.state.items():  # last layers are tiny at first, and targets equal
        if name.startswith(("policy/", "target/", "critic/", "critic_target/")):
            variable.assign(rng.normal(size=variable.shape) / 2)
    for step in range(7):
        plain = PlainTd3(made)
        batch = transitions(World(), rng=rng)
        batch.importance[:] = rng.uniform(0.2, 1, 16)
        batch.records["discount"] = rng.choice([0, 0.9], 16)
        noise = tf.random.stateless_normal((16, 2), [made.config.seed, step]).numpy()
        wanted = plain.step(batch.records, batch.importance, noise.astype(np.float64))
        errors, loss = made.step(batch)
        assert errors == pytest.approx(np.abs(wanted).mean(0), rel=1e-5, abs=1e-6)
        assert loss == pytest.approx((batch.importance * wanted**2).mean(1).sum(), rel=1e-5)
        found = {name: v for name, v in made.state.items() if name != "taken"}
        assert found.keys() == plain.state.keys()
        for name, variable in found.items():
            # A weight that moves 0.01 by gradients of 1e-6 moves by 0.01 of it more or less.
            near = 2e-4 if name.partition("/")[0] in ("policy", "critic") else 2e-5
            assert variable.numpy() == pytest.approx(plain.state[name], rel=1e-4, abs=near), name


def test_policy_and_targets_wait_for_their_turn():
    made, rng = learner_of(policy_delay=3), np.random.default_rng(0)
    for step in range(1, 7):
        before = {name: v.numpy() for name, v in made.state.items()}
        made.step(transitions(World(), rng=rng))
        moved = {
            name.split("/")[0]
            for name, v in made.state.items()
            if not np.array_equal(before[name], v.numpy())
        }
        waiting = {"policy", "policy_adam", "target", "critic_target"}
        assert moved == {"critic", "critic_adam", "taken"} | (waiting if step % 3 == 0 else set())


def test_a_learner_continues_from_its_state_to_the_bit():
    batches = [transitions(World(), rng=i) for i in range(6)]
    whole, begun, other = learner_of(seed=3), learner_of(seed=3), learner_of(seed=4)
    for batch in batches:
        whole.step(batch)
    for batch in batches[:3]:
        begun.step(batch)
    went_on = learner_of(seed=3)
    for name, variable in went_on.state.items():
        variable.assign(begun.state[name])
    for batch in batches[3:]:
        went_on.step(batch)
    for name, variable in whole.state.items():
        assert np.array_equal(variable, went_on.state[name]), name
    assert not np.array_equal(whole.policy["output/kernel"], other.policy["output/kernel"])


def test_bfloat16_is_near_float32_and_not_equal():
    found = []
    for precision in ("float32", "mixed_bfloat16"):
        made, rng = learner_of(precision=precision), np.random.default_rng(0)
        made.step(transitions(World(), rng=rng))
        found.append(made.step(transitions(World(), rng=rng))[1])
    assert found[0] != found[1] and found[1] == pytest.approx(found[0], rel=0.05)
    with pytest.raises(UsageError, match="precision float16 is not supported by TD3"):
        Td3Config("fixed", precision="float16")


def test_images_and_choices_are_refused():
    config = Td3Config("fixed")
    with pytest.raises(UsageError, match="td3 does not learn from images"):
        check_fits(config, World((20, 20, 3), np.uint8))
    pytest.importorskip("gymnasium", reason="needs the extra `rl`")
    with pytest.raises(UsageError, match="td3 does not fit `CartPole-v1`"):
        train("unused", "td3", "CartPole-v1")


def test_a_run_of_the_command_line_ends_and_continues(tmp_path):
    pytest.importorskip("gymnasium", reason="needs the extra `rl`")
    words = (
        "--algorithm td3 --env Pendulum-v1 --steps 120 --min-replay-size 60 --batch-size 16 "
        "--samples-per-insert 8 --hidden-sizes 16 --critic-hidden-sizes 16 --in-process "
        "--episodes 1 --actor-bits 8 --policy-delay 3 --target-noise 0.1 --target-noise-clip 0.3"
    )
    found = qgraph("rl", "train", *words.split(), "-o", tmp_path / "run")
    assert found.code == 0, found.err
    went_on = train(tmp_path / "run", settings={"steps": 140}, resume=True)
    assert went_on.done and went_on.config == config_for(
        "td3", "Pendulum-v1", steps=140, min_replay_size=60, batch_size=16, actor_bits=8,
        samples_per_insert=8.0, hidden_sizes=(16,), critic_hidden_sizes=(16,), in_process=True,
        episodes=1, policy_delay=3, target_noise=0.1, target_noise_clip=0.3,
    )  # fmt: skip
    records = went_on.replay.records
    assert np.abs(records["action"]).max() <= 1 and records["version"].max() > 0


@pytest.mark.parametrize(
    ("bits", "precision"),
    [(8, "float32"), pytest.param(4, "mixed_bfloat16", marks=pytest.mark.slow)],
)
def test_td3_learns_with_actors_in_few_bits(tmp_path, bits, precision):
    pytest.importorskip("gymnasium", reason="needs the extra `rl`")
    settings = {
        "steps": 800, "min_replay_size": 200, "batch_size": 64, "samples_per_insert": 64.0,
        "hidden_sizes": (32,), "critic_hidden_sizes": (32,), "learning_rate": 3e-3, "sigma": 0.3,
        "discount": 0.9, "tau": 0.02, "in_process": True, "actor_bits": bits,
        "precision": precision, "evaluate_every": 1000, "episodes": 20,
    }  # fmt: skip
    train(tmp_path / "run", "td3", POINT, settings)
    with (tmp_path / "run" / "progress.csv").open() as stream:
        returns = [float(row["return_mean"]) for row in csv.DictReader(stream)]
    assert returns[-1] > -0.8  # -4.4 for a policy that stays where it is
